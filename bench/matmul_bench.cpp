// Measures matmul per format and number of tokens, with weights in the second-level cache (one
// thread) and from memory (all threads, rotating through more than 500 MB).
//
// The counter Gw/s counts weights per second and GB/s packed weights. `read` is the share of the
// read bandwidth and `peak` that of the int8 multiply-add peak; both are measured when the program
// starts.
#include <benchmark/benchmark.h>

#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "codec/format.h"
#include "kernels/machine_probe.h"
#include "kernels/ops.h"
#include "kernels/panel_layout.h"

namespace walsh {
namespace {

constexpr int64_t kRows = 2048;
constexpr int64_t kCols = 2048;
constexpr int64_t kCachedRows = 512;
constexpr uint64_t kRotatedBytes = uint64_t{520} << 20;

PanelMatrix random_trellis(const Format& format, int64_t rows, int64_t cols, Random& random) {
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = rows;
  tensor.cols = cols;
  std::vector<std::vector<uint16_t>> arrays;
  std::vector<std::span<const std::byte>> spans;
  for (const ArraySpec& spec : array_specs(format, rows, cols)) {
    auto& array = arrays.emplace_back(spec.bytes / 2);
    for (uint16_t& v : array) {
      v = spec.suffix == "codes" ? static_cast<uint16_t>(random.next())
                                 : f32_to_f16(static_cast<float>(0.01 + 0.01 * random.uniform()));
    }
    spans.push_back(std::as_bytes(std::span(array)));
  }
  bind_arrays(tensor, spans);
  return pack_panels(tensor, 0);
}

// Returns random codes and scales in the packed layout.
PanelMatrix random_matrix(const Format& format, int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed);
  if (format.kind == CodeKind::trellis) return random_trellis(format, rows, cols, random);
  const ScalarCode& code = format.code[0];
  PanelMatrix w;
  w.code = &code;
  w.rows = rows;
  w.cols = cols;
  w.group = code.sub_group ? code.sub_group : code.group ? code.group : cols;
  w.offset_group = code.has_offset ? code.group : 0;
  const auto halves = [&](int64_t group) {
    AlignedArray<uint16_t> out(
        static_cast<size_t>(w.panels() * ceil_div(cols, group) * kPanelRows));
    for (uint16_t& v : out)
      v = f32_to_f16(static_cast<float>(0.01 + 0.01 * random.uniform()));
    return out;
  };
  w.codes =
      AlignedArray<uint32_t>(static_cast<size_t>(w.panels() * detail::panel_words(w, code.bits)));
  for (uint32_t& word : w.codes)
    word = static_cast<uint32_t>(random.next());
  w.scales = halves(w.group);
  if (w.offset_group) w.offsets = halves(w.offset_group);
  return w;
}

struct Machine {
  ThreadPool pool;
  double read_bandwidth = measure_read_bandwidth(pool);
  double int8_peak = measure_int8_peak(pool);
};

Machine& machine() {
  static Machine m;
  return m;
}

void report(benchmark::State& state, uint64_t bytes, int64_t weights, int64_t m, int threads) {
  using benchmark::Counter;
  const double runs = static_cast<double>(state.iterations());
  const double peak = machine().int8_peak * threads / machine().pool.size();
  const auto rate = [&](double amount) {
    return Counter(amount * runs, Counter::kIsRate, Counter::OneK::kIs1000);
  };
  state.counters["Gw/s"] = rate(static_cast<double>(weights) * 1e-9);
  state.counters["GB/s"] = rate(static_cast<double>(bytes) * 1e-9);
  state.counters["read"] = rate(static_cast<double>(bytes) / machine().read_bandwidth);
  state.counters["peak"] = rate(static_cast<double>(weights * m) / peak);
}

void bench_cached(benchmark::State& state, const Format* format) {
  const int64_t m = state.range(0);
  const PanelMatrix w = random_matrix(*format, kCachedRows, kCols, 1);
  const ActivationsI8 x(m, kCols, kActivationGroup, 1);
  AlignedArray<float> y(static_cast<size_t>(m * kCachedRows));
  for ([[maybe_unused]] auto _ : state) {
    ops().matmul_i8({w, x, m, y.data(), kCachedRows, 0, w.panels(), false});
    benchmark::ClobberMemory();
  }
  report(state, w.bytes(), w.rows * w.cols, m, 1);
}

void bench_memory(benchmark::State& state, const Format* format) {
  const int64_t m = state.range(0);
  std::vector<PanelMatrix> all;
  uint64_t bytes = 0;
  while (bytes < kRotatedBytes) {
    all.push_back(random_matrix(*format, kRows, kCols, all.size()));
    bytes += all.back().bytes();
  }
  const ActivationsI8 x(m, kCols, kActivationGroup, 1);
  AlignedArray<float> y(static_cast<size_t>(m * kRows));
  for ([[maybe_unused]] auto _ : state) {
    for (const PanelMatrix& w : all) {
      machine().pool.for_ranges(w.panels(), 1, [&](int64_t begin, int64_t end) {
        ops().matmul_i8({w, x, m, y.data(), kRows, begin, end, false});
      });
    }
  }
  const int64_t weights = kRows * kCols * static_cast<int64_t>(all.size());
  report(state, bytes, weights, m, machine().pool.size());
}

void bench_exact(benchmark::State& state, const Format* format) {
  const int64_t m = state.range(0);
  const PanelMatrix w = random_matrix(*format, kCachedRows, kCols, 1);
  AlignedArray<float> x(static_cast<size_t>(m * kCols));
  AlignedArray<float> y(static_cast<size_t>(m * kCachedRows));
  for ([[maybe_unused]] auto _ : state) {
    ops().matmul_f32({w, x.data(), kCols, m, y.data(), kCachedRows, 0, w.panels(), false});
    benchmark::ClobberMemory();
  }
  // A float multiply-add lane replaces four int8 ones.
  report(state, w.bytes(), w.rows * w.cols, 4 * m, 1);
}

void register_all() {
  for (const char* name :
       {"tq2", "itq3_s", "tq3", "tq4", "q8_0", "tc2:h", "tc3:h", "tc4:h", "tc3:hq"}) {
    const Format& format = get_format(name);
    const std::string text = name;
    auto* cached = benchmark::RegisterBenchmark(("cached/" + text).c_str(), bench_cached, &format);
    for (int64_t m : {1, 2, 4, 8, 16, 64, 512})
      cached->Arg(m);
    auto* memory = benchmark::RegisterBenchmark(("memory/" + text).c_str(), bench_memory, &format);
    for (int64_t m : {1, 2, 4, 8, 16})
      memory->Arg(m)->UseRealTime()->Unit(benchmark::kMillisecond);
    auto* exact = benchmark::RegisterBenchmark(("exact/" + text).c_str(), bench_exact, &format);
    for (int64_t m : {1, 16, 128})
      exact->Arg(m);
  }
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  walsh::register_all();
  benchmark::AddCustomContext("read GB/s", std::to_string(walsh::machine().read_bandwidth * 1e-9));
  benchmark::AddCustomContext("int8 peak GMAC/s",
                              std::to_string(walsh::machine().int8_peak * 1e-9));
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
