#include "cli/matmul_bench.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

#include "base/random.h"
#include "cli/interrupt.h"

namespace walsh::cli {
namespace {

constexpr double kMinSeconds = 0.05;  // a repetition takes at least this long
constexpr uint16_t kScale = 0x2400;   // this is 1/64 as fp16

}  // namespace

RandomMatrix::RandomMatrix(const Format& format, const MatrixShape& shape, uint64_t seed) {
  tensor_.format = &format;
  tensor_.rows = shape.rows;
  tensor_.cols = shape.cols;
  std::vector<AlignedArray<std::byte>> arrays;
  std::vector<std::span<const std::byte>> spans;
  Random random(seed);
  for (const ArraySpec& spec : array_specs(format, shape.rows, shape.cols)) {
    auto& array = arrays.emplace_back(spec.bytes);
    const bool codes = spec.suffix.starts_with("codes");
    for (size_t i = 0; i + 8 <= array.size(); i += 8) {
      const uint64_t value = codes ? random.next() : kScale * 0x0001000100010001ull;
      std::memcpy(array.data() + i, &value, 8);
    }
    spans.emplace_back(array.data(), array.size());
  }
  bind_arrays(tensor_, spans);
  if (format.dense) {
    dense_ = std::move(arrays.front());
    return;
  }
  for (int pass = 0; pass < format.passes; ++pass)
    passes_.push_back(pack_panels(tensor_, pass));
}

uint64_t RandomMatrix::bytes() const {
  uint64_t sum = dense_.size();
  for (const PanelMatrix& pass : passes_)
    sum += pass.bytes();
  return sum;
}

MatmulBench::MatmulBench(const Format& format, const MatrixShape& shape, int64_t max_batch,
                         uint64_t bytes, ThreadPool& pool)
    : format_(format), shape_(shape), pool_(pool), ops_(ops()) {
  copies_.emplace_back(format, shape, 1);
  const uint64_t count = std::clamp<uint64_t>(bytes / copies_[0].bytes(), 1, 64);
  for (uint64_t i = 1; i < count; ++i)
    copies_.emplace_back(format, shape, i + 1);
  input_ = AlignedArray<float>(static_cast<size_t>(max_batch * shape.cols));
  Random random(99);
  for (float& x : input_)
    x = static_cast<float>(random.normal());
  output_ = AlignedArray<float>(static_cast<size_t>(max_batch * shape.rows));
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MatmulBench::measure(int64_t batch, int repetitions, double (*clock)()) {
  const int group = format_.rotation_block ? kActivationGroup : kPlainGroup;
  if (!format_.dense) {
    quantized_ = ActivationsI8(batch, shape_.cols, group, format_.activation_planes);
    for (int64_t t = 0; t < batch; ++t)
      ops_.quantize_i8(input_.data() + t * shape_.cols, quantized_, t);
  }
  product(batch);
  std::vector<double> times;
  for (int r = 0; r < repetitions; ++r) {
    InterruptGuard::check();
    const double begin = clock();
    double elapsed = 0;
    int64_t count = 0;
    do {
      product(batch);
      ++count;
      elapsed = clock() - begin;
    } while (elapsed < kMinSeconds);
    times.push_back(elapsed / static_cast<double>(count));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void MatmulBench::product(int64_t batch) {
  const RandomMatrix& w = copies_[next_++ % copies_.size()];
  if (format_.dense) {
    pool_.for_ranges(shape_.rows, kPanelRows, [&](int64_t begin, int64_t end) {
      ops_.matmul_dense(format_.dtype, w.dense(), shape_.cols, input_.data(), shape_.cols, batch,
                        output_.data(), shape_.rows, begin, end);
    });
    return;
  }
  pool_.for_ranges(w.passes()[0].panels(), 1, [&](int64_t begin, int64_t end) {
    for (size_t pass = 0; pass < w.passes().size(); ++pass) {
      ops_.matmul_i8(
          {w.passes()[pass], quantized_, batch, output_.data(), shape_.rows, begin, end, pass > 0});
    }
  });
}

}  // namespace walsh::cli
