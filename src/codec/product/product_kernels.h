// Searches the nearest entries of product codes, with one implementation per instruction set. All
// compute with integers, so they give the same bytes.
#pragma once

#include <cstdint>

#include "base/aligned.h"
#include "codec/product/product.h"

namespace walsh::detail {

// A unit of the codebook has this many steps, which is fine beside the rounding of its entries.
inline constexpr int kProductSteps = 16;
// Targets are clamped to this, so that four squared distances fit in int32.
inline constexpr int kLargestProductTarget = 12000;
// At most this many vectors of four targets are searched together; no group has more.
inline constexpr int kSearchVectors = 32;

// Holds a codebook in steps of kProductSteps per unit.
struct ProductTable {
  alignas(64) int16_t entries[kProductEntries][kProductValues];
  int16_t residual;
};

// Holds the targets of kSearchVectors vectors, in steps. pairs[h][v] are weights 2h and 2h + 1 of
// vector v.
struct ProductTargets {
  alignas(64) int16_t pairs[2][kSearchVectors][2];
};

// Sets pointers[v] to the entry with the least sum over the four weights of (|x - entry| -
// residual)^2, the lowest entry of equal ones, for the first `vectors` vectors (a multiple of 8).
// Pointers up to the next multiple of 16 may be overwritten, too.
using ProductSearchKernel = void (*)(const ProductTable& table, const ProductTargets& targets,
                                     int vectors, uint8_t* pointers);

void product_search_ref(const ProductTable& table, const ProductTargets& targets, int vectors,
                        uint8_t* pointers);
void product_search_avx2(const ProductTable& table, const ProductTargets& targets, int vectors,
                         uint8_t* pointers);
void product_search_avx512(const ProductTable& table, const ProductTargets& targets, int vectors,
                           uint8_t* pointers);

// Returns the implementation for current_isa().
ProductSearchKernel product_search_kernel();

}  // namespace walsh::detail
