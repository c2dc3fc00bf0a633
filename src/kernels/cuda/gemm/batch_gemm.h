// Multiplies 17 to 256 vectors with codes, on GPUs with tensor cores of sm_90.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda/device.h"
#include "base/function_ref.h"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

// Batches have such products for more vectors than gemv() takes, up to this number.
inline constexpr int64_t kMaxBatch = 256;

// Holds the memory that these products need beside matrices and inputs, for inputs in another order
// and for parts of results. Products that share one object must be ordered on one stream.
class BatchSpace {
 public:
  BatchSpace() = default;
  // Allocates room for up to max_m vectors of up to `cols` values in up to `planes` planes.
  BatchSpace(int64_t max_m, int64_t cols, int planes);
  // Allocates the same for one use, which is ordered on a stream behind what the constructor does
  // there.
  BatchSpace(int64_t max_m, int64_t cols, int planes, Stream stream);

  // Returns whether the current device has the instructions and this build has the kernels.
  static bool is_supported();
  static uint64_t bytes(int64_t max_m, int64_t cols, int planes);

  // Returns whether there are kernels for the codes and groups of a matrix.
  static bool knows(const Matrix& matrix);

  bool empty() const { return inputs_.empty(); }
  // Returns whether codes, groups and sizes of a product fit these kernels.
  bool can_multiply(const Matmul& product, int64_t m) const;
  // Computes what gemv() computes, for up to kMaxBatch vectors.
  void multiply(std::span<const Matmul> products, int64_t m, Stream stream) const;
  // Computes what prepare() and multiply() compute, in one launch less, and leaves no int8 values
  // in the inputs of the products. Returns false, having done nothing, if there are no such
  // kernels.
  bool prepare_and_multiply(const InputSource& source, std::span<const InputForm> forms,
                            std::span<const Matmul> products, int64_t m, Stream stream) const;
  // Multiplies with blocks of a given shape, for tests and measurements.
  void multiply(std::span<const Matmul> products, int64_t m, detail::BatchShape shape,
                Stream stream) const;

 private:
  void multiply(std::span<const Matmul> products, int64_t m, detail::BatchShape shape,
                Stream stream,
                FunctionRef<void(const Activations&, detail::BatchPack&)> make_inputs) const;

  Buffer inputs_, parts_, arrived_;
};

namespace detail {
// Returns the shape of blocks that should be the fastest for products with these numbers of rows,
// by a model of the kernels. `cols` counts all planes.
BatchShape batch_shape(std::span<const int64_t> rows, int64_t cols, int64_t m,
                       int64_t multiprocessors);
}  // namespace detail

}  // namespace walsh::cuda
