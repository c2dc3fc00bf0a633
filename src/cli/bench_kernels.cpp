#include "cli/bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/random.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "formats/tensor.h"
#include "kernels/machine_probe.h"
#include "kernels/ops.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

constexpr uint64_t kColdBytes = uint64_t{192} << 20;  // more than the last-level cache holds
constexpr double kMinSeconds = 0.05;                  // per repetition
constexpr uint16_t kScale = 0x2400;                   // fp16 1/64

struct KernelResult {
  std::string type;
  MatrixShape shape;
  int64_t batch;
  double seconds;  // per product
  uint64_t bytes;  // of the weights
  double bandwidth_share, int8_share;

  double macs() const {
    return static_cast<double>(shape.rows) * static_cast<double>(shape.cols) *
           static_cast<double>(batch);
  }
};

// A matrix of random codes, packed for the kernels: one or two passes, or dense.
class RandomMatrix {
 public:
  RandomMatrix(const Format& format, const MatrixShape& shape, uint64_t seed) {
    tensor_.format = &format;
    tensor_.rows = shape.rows;
    tensor_.cols = shape.cols;
    const std::vector<ArraySpec> specs = array_specs(format, shape.rows, shape.cols);
    std::vector<AlignedArray<std::byte>> arrays;
    std::vector<std::span<const std::byte>> spans;
    Random random(seed);
    for (const ArraySpec& spec : specs) {
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

  uint64_t bytes() const {
    uint64_t sum = dense_.size();
    for (const PanelMatrix& pass : passes_)
      sum += pass.bytes();
    return sum;
  }
  const std::vector<PanelMatrix>& passes() const { return passes_; }
  const std::byte* dense() const { return dense_.data(); }

 private:
  Tensor tensor_;
  AlignedArray<std::byte> dense_;
  std::vector<PanelMatrix> passes_;
};

// One (type, shape): several copies of the weights, so that each product reads them from memory.
class KernelBench {
 public:
  KernelBench(const Format& format, const MatrixShape& shape, int64_t max_batch, ThreadPool& pool)
      : format_(format), shape_(shape), pool_(pool), ops_(ops()) {
    copies_.emplace_back(format, shape, 1);
    const uint64_t count = std::clamp<uint64_t>(kColdBytes / copies_[0].bytes(), 1, 64);
    for (uint64_t i = 1; i < count; ++i)
      copies_.emplace_back(format, shape, i + 1);
    input_ = AlignedArray<float>(static_cast<size_t>(max_batch * shape.cols));
    Random random(99);
    for (float& x : input_)
      x = static_cast<float>(random.normal());
    output_ = AlignedArray<float>(static_cast<size_t>(max_batch * shape.rows));
  }

  uint64_t bytes() const { return copies_[0].bytes(); }

  // Seconds per product, the median over the repetitions.
  double measure(int64_t batch, int repetitions) {
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
      const Stopwatch watch;
      int64_t count = 0;
      do {
        product(batch);
        ++count;
      } while (watch.seconds() < kMinSeconds);
      times.push_back(watch.seconds() / static_cast<double>(count));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  void product(int64_t batch) {
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
        ops_.matmul_i8(w.passes()[pass], quantized_, batch, output_.data(), shape_.rows, begin, end,
                       pass > 0);
      }
    });
  }

  const Format& format_;
  MatrixShape shape_;
  ThreadPool& pool_;
  const Ops& ops_;
  std::vector<RandomMatrix> copies_;
  size_t next_ = 0;
  AlignedArray<float> input_, output_;
  ActivationsI8 quantized_;
};

std::string show(const std::vector<KernelResult>& results, const std::string& output) {
  if (output == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const KernelResult& r : results) {
      list.push_back({{"type", r.type},
                      {"k", r.shape.cols},
                      {"n", r.shape.rows},
                      {"batch", r.batch},
                      {"microseconds", r.seconds * 1e6},
                      {"gb_per_s", static_cast<double>(r.bytes) / r.seconds / 1e9},
                      {"bandwidth_share", r.bandwidth_share},
                      {"gmac_per_s", r.macs() / r.seconds / 1e9},
                      {"int8_share", r.int8_share}});
    }
    return list.dump(2) + "\n";
  }
  const bool md = output == "md";
  std::string text = md ? "| type | K x N | batch | us | GB/s | of bandwidth | GMAC/s | of peak |\n"
                          "|---|---|---|---|---|---|---|---|\n"
                        : "type,shape,batch,us,gb_per_s,bandwidth_share,gmac_per_s,int8_share\n";
  for (const KernelResult& r : results) {
    const std::string cells[] = {
        r.type,
        fmt::format("{}x{}", r.shape.cols, r.shape.rows),
        fmt::format("{}", r.batch),
        fmt::format("{:.1f}", r.seconds * 1e6),
        fmt::format("{:.2f}", static_cast<double>(r.bytes) / r.seconds / 1e9),
        fmt::format("{:.3f}", r.bandwidth_share),
        fmt::format("{:.1f}", r.macs() / r.seconds / 1e9),
        fmt::format("{:.3f}", r.int8_share)};
    const std::string line = fmt::format("{}", fmt::join(cells, md ? " | " : ","));
    text += md ? "| " + line + " |\n" : line + "\n";
  }
  return text;
}

}  // namespace

MatrixShape parse_shape(const std::string& text) {
  MatrixShape shape{};
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shape.cols);
  if (first.ec == std::errc() && first.ptr < end && *first.ptr == 'x') {
    const auto second = std::from_chars(first.ptr + 1, end, shape.rows);
    const auto sane = [](int64_t n) { return n >= 32 && n <= 1 << 20 && n % 32 == 0; };
    if (second.ec == std::errc() && second.ptr == end && sane(shape.cols) && sane(shape.rows)) {
      return shape;
    }
  }
  throw Error(ErrorCode::usage, "--shapes",
              "'" + text + "', expected KxN, both multiples of 32 up to 1048576");
}

std::string bench_kernels(const KernelBenchOptions& options, ThreadPool& pool) {
  std::vector<std::string> types = options.types;
  if (types.empty()) types = {"itq3_s", "tq2", "tq3", "tq4", "tq4+4", "q8_0", "q4_0", "bf16"};
  const double bandwidth = measure_read_bandwidth(pool);
  const double peak = measure_int8_peak(pool);
  const int64_t max_batch = *std::max_element(options.batches.begin(), options.batches.end());
  std::vector<KernelResult> results;
  for (const std::string& type : types) {
    const Format& format = get_format(type);
    for (const std::string& shape_text : options.shapes) {
      const MatrixShape shape = parse_shape(shape_text);
      KernelBench bench(format, shape, max_batch, pool);
      for (const int64_t batch : options.batches) {
        KernelResult r{type,          shape, batch, bench.measure(batch, options.repetitions),
                       bench.bytes(), 0,     0};
        r.bandwidth_share = static_cast<double>(r.bytes) / r.seconds / bandwidth;
        r.int8_share = r.macs() / r.seconds / peak;
        results.push_back(std::move(r));
      }
    }
  }
  return show(results, options.output);
}

}  // namespace walsh::cli
