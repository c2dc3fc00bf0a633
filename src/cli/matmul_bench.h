// Times products with random matrices of a storage format, for `walsh bench --kernels` and
// `--formats`.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "cli/bench_kernels.h"
#include "formats/tensor.h"
#include "kernels/ops.h"

namespace walsh::cli {

inline constexpr uint64_t kColdBytes = uint64_t{192} << 20;  // more than the last-level cache holds

// A matrix of random codes, packed for the kernels: one or two passes, or dense.
class RandomMatrix {
 public:
  RandomMatrix(const Format& format, const MatrixShape& shape, uint64_t seed);

  uint64_t bytes() const;
  const std::vector<PanelMatrix>& passes() const { return passes_; }
  const std::byte* dense() const { return dense_.data(); }

 private:
  Tensor tensor_;
  AlignedArray<std::byte> dense_;
  std::vector<PanelMatrix> passes_;
};

// Seconds since some moment: by the clock on the wall, or of the processor in this thread, which
// other programs on a busy machine leave alone.
double wall_seconds();
double thread_seconds();

// Products of one matrix with up to `max_batch` vectors. As many copies of the matrix as fill
// `bytes` take turns, so that with kColdBytes each product reads its weights from memory and with 0
// the one matrix stays in the caches.
class MatmulBench {
 public:
  MatmulBench(const Format& format, const MatrixShape& shape, int64_t max_batch, uint64_t bytes,
              ThreadPool& pool);

  uint64_t bytes() const { return copies_[0].bytes(); }  // of one matrix
  // Seconds per product by a clock, the median over the repetitions.
  double measure(int64_t batch, int repetitions, double (*clock)() = wall_seconds);

 private:
  void product(int64_t batch);

  const Format& format_;
  MatrixShape shape_;
  ThreadPool& pool_;
  const Ops& ops_;
  std::vector<RandomMatrix> copies_;
  size_t next_ = 0;
  AlignedArray<float> input_, output_;
  ActivationsI8 quantized_;
};

}  // namespace walsh::cli
