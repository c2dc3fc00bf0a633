#include "cli/bench_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "cli/matmul_bench.h"
#include "io/json.h"
#include "kernels/machine_probe.h"
#include "walsh/error.h"

namespace walsh::cli {
namespace {

struct KernelResult {
  std::string type;
  MatrixShape shape;
  int64_t batch;
  double seconds;  // a product takes this long
  uint64_t bytes;  // the weights take this many bytes
  double bandwidth_share, int8_share;

  double macs() const {
    return static_cast<double>(shape.rows) * static_cast<double>(shape.cols) *
           static_cast<double>(batch);
  }
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
    return format_json(list, 2) + "\n";
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
      MatmulBench bench(format, shape, max_batch, kColdBytes, pool);
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
