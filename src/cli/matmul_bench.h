// Times products with random matrices in a storage format, for `walsh bench --kernels` and
// `--formats`.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "cli/bench_kernels.h"
#include "codec/tensor.h"
#include "kernels/ops.h"

namespace walsh::cli {

inline constexpr uint64_t kColdBytes = uint64_t{192} << 20;  // the last-level cache holds less

// Holds a matrix of random codes that is packed for the kernels. It is dense or has one or two
// passes.
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

// The first of these clocks counts seconds of wall time, the second seconds of this thread's
// processor time, which other programs on a busy machine do not affect.
double wall_seconds();
double thread_seconds();

// Times products of one matrix with up to `max_batch` vectors. Copies of the matrix that fill
// `bytes` take turns: with kColdBytes each product reads its weights from memory, and with 0 from
// the caches.
class MatmulBench {
 public:
  MatmulBench(const Format& format, const MatrixShape& shape, int64_t max_batch, uint64_t bytes,
              ThreadPool& pool);

  uint64_t bytes() const { return copies_[0].bytes(); }  // one matrix takes this many bytes
  // Returns the seconds that a product takes by a clock, as the median of the repetitions.
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
