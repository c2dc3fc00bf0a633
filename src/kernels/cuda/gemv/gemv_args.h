// Products of one launch described for kernels.
#pragma once

#include <span>
#include <string>

#include "base/function_ref.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda::detail {

// Throws internal.
[[noreturn]] void refuse_matmul(const std::string& reason);

// One pass of one product.
struct PassMatmul {
  const Matrix* matrix;
  const Activations* input;
  const Matmul* product;
  int pass;
};

// Whether both can be in one launch.
bool same_launch(const PassMatmul& a, const PassMatmul& b);

// Calls body(group) with the products that have this pass, neighbours that can be in one launch
// together, until it says false, and says so.
bool for_launches(std::span<const Matmul> products, int pass,
                  FunctionRef<bool(std::span<const PassMatmul>)> body);
// The same for products of one input and as many columns, whatever their codes.
bool for_inputs(std::span<const Matmul> products, int pass,
                FunctionRef<bool(std::span<const PassMatmul>)> body);

// Columns between two additions to the float sums.
int flush_columns(const Matrix& m, const Activations& x);

// What kernels are told of a matrix's code.
void describe_matrix(const Matrix& m, GemvArgs& args);

// Matrices, results and kind of input of products that can be in one launch.
void describe_group(std::span<const PassMatmul> group, GemvArgs& args);

// GemvKind::tiles8 of so many vectors.
int tiles_of_8(int vectors);

// Finds args.slice_k_tiles, which fits for every number of inputs, so that the order of additions
// is the same for all of them, and returns how many inputs a launch takes at most, which are no
// more than `wanted`. `shared` bytes is what a block can ask for, `architecture` what the kernels
// are compiled for. Throws internal.
int plan_slices(const GemvKind& kind, int64_t shared, int architecture, GemvArgs& args,
                int wanted = static_cast<int>(kMaxVectors));

// Shared memory that a launch asks for.
int64_t gemv_bytes(const GemvKind& kind, const GemvArgs& args, int architecture);

}  // namespace walsh::cuda::detail
