// The front of a block: everything that reads the rows of the stream before its coded products, in
// one launch. Prepared inputs of these products, products with small plain matrices (routers, gates
// of shared experts, decays and strengths), and the choice of experts by the first of them.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/rows/prepare.h"

namespace walsh::cuda {

inline constexpr int kMostFrontForms = 4;
inline constexpr int kMostFrontProducts = kMaxMatmuls;
inline constexpr int64_t kMostFrontColumns = 16384;  // of an input
inline constexpr int64_t kMostFrontRows = 1024;      // of a matrix

// y[t * ldy + row] = bias[row] + W x of a float32 matrix [rows][width of the input].
struct FrontProduct {
  const float* weights = nullptr;
  const float* bias = nullptr;  // [rows] or null
  float* y = nullptr;
  int64_t ldy = 0, rows = 0;
};

// The choice by the results of the first product, [m][experts], which call.logits is.
struct FrontRoute {
  RouteCall call;
  ExpertPlan plan;
  SlotArrays slots;
  int32_t* arrived = nullptr;  // one, zero; and zero again behind the launch
};

struct FrontCall {
  InputSource source;
  std::span<const InputForm> forms;        // kMostFrontForms at most
  std::span<const FrontProduct> products;  // one to kMostFrontProducts
  const FrontRoute* route = nullptr;       // or null: there is no choice
  int64_t m = 0;                           // kMaxVectors at most
};

// Inputs have the bits of prepare(). Sums of products are float32 in an order that depends on the
// width alone. Throws internal for shapes beyond the limits above.
void front(const FrontCall& call, Stream stream);

}  // namespace walsh::cuda
