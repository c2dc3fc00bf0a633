// Makes the arguments of kernels from the products of one launch.
#pragma once

#include <span>
#include <string>

#include "base/function_ref.h"
#include "kernels/cuda/gemv/gemv_kernel.h"

namespace walsh::cuda::detail {

// Throws internal with the reason.
[[noreturn]] void refuse_matmul(const std::string& reason);

// Describes one pass of one product.
struct PassMatmul {
  const Matrix* matrix;
  const Activations* input;
  const Matmul* product;
  int pass;
};

// Returns whether both products can be in one launch.
bool same_launch(const PassMatmul& a, const PassMatmul& b);

// Calls body(group) for groups of neighbouring products that have this pass and can be in one
// launch. Stops and returns false if the body returns false.
bool for_launches(std::span<const Matmul> products, int pass,
                  FunctionRef<bool(std::span<const PassMatmul>)> body);
// Does the same for groups of products of one input with equal numbers of columns, whatever their
// codes are.
bool for_inputs(std::span<const Matmul> products, int pass,
                FunctionRef<bool(std::span<const PassMatmul>)> body);

// Returns how many columns are summed in integers before the sum is scaled and added as float.
int flush_columns(const Matrix& m, const Activations& x);

// Sets what kernels need to know of a matrix's code.
void describe_matrix(const Matrix& m, GemvArgs& args);

// Sets matrices, results and the kind of input for products in one launch.
void describe_group(std::span<const PassMatmul> group, GemvArgs& args);

// Chooses args.slice_k_tiles so that it fits for every number of inputs, which keeps the order of
// additions the same for all of them, and returns the most inputs of a launch, at most `wanted`.
// `shared` is the shared memory available to a block, and `architecture` is that of the kernels'
// code. Throws internal.
int plan_slices(const GemvKind& kind, int64_t shared, int architecture, GemvArgs& args,
                int wanted = static_cast<int>(kMaxVectors));

// Returns the bytes of shared memory that a launch needs.
int64_t gemv_bytes(const GemvKind& kind, const GemvArgs& args, int architecture);

}  // namespace walsh::cuda::detail
