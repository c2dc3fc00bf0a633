// Products with 17 to 256 vectors from codes, on GPUs with tensor cores of sm_90.
#pragma once

#include <cstdint>
#include <span>

#include "base/cuda/device.h"
#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/gemv/gemv.h"

namespace walsh::cuda {

// Vectors from which a batch has such products, where gemv() ends, up to this many.
inline constexpr int64_t kMaxBatch = 256;

// What these products need beside matrices and inputs: inputs in another order, and parts of
// results. Products that share one must be ordered on one stream.
class BatchSpace {
 public:
  BatchSpace() = default;
  // For up to max_m vectors of up to `cols` values in up to `planes` planes.
  BatchSpace(int64_t max_m, int64_t cols, int planes);

  // Whether the current device has the instructions, and this build the kernels.
  static bool is_supported();
  static uint64_t bytes(int64_t max_m, int64_t cols, int planes);

  // Whether there are kernels for the codes and groups of a matrix.
  static bool knows(const Matrix& matrix);

  bool empty() const { return inputs_.empty(); }
  // Whether a product can be made: codes, groups and sizes fit.
  bool can_multiply(const Matmul& product, int64_t m) const;
  // As gemv() for any number of vectors.
  void multiply(std::span<const Matmul> products, int64_t m, Stream stream) const;
  // With a shape of blocks, for tests and measurements.
  void multiply(std::span<const Matmul> products, int64_t m, detail::BatchShape shape,
                Stream stream) const;

 private:
  Buffer inputs_, parts_, arrived_;
};

namespace detail {
// The shape of blocks that a model of the kernels expects to be the fastest for products of these
// numbers of rows, `cols` counting all planes.
BatchShape batch_shape(std::span<const int64_t> rows, int64_t cols, int64_t m,
                       int64_t multiprocessors);
}  // namespace detail

}  // namespace walsh::cuda
