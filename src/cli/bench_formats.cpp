#include "cli/bench_formats.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "cli/interrupt.h"
#include "cli/matmul_bench.h"
#include "codec/encode/encode_tensor.h"
#include "io/json.h"
#include "kernels/machine_probe.h"

namespace walsh::cli {
namespace {

constexpr int64_t kEncodeCols = 1024, kMostEncodeRows = 4096;
// A repetition of encoding takes at least this long.
constexpr double kMinSeconds = 0.1;
constexpr MatrixShape kCachedShape = {1024, 512};  // these weights take half a MiB at 8 bits
constexpr MatrixShape kMemoryShape = {4096, 4096};

struct FormatSpeed {
  const Format* format;
  double encode;  // one core encodes this many weights/s
  double decode;  // one core decodes this many weights/s from the second-level cache
  double memory;  // all threads read this many bytes/s
  double share;   // this is the share of the bandwidth
};

double encode_seconds(const Format& format, int64_t rows, ThreadPool& one) {
  Rotation rotation[2];
  for (int pass = 0; pass < 2; ++pass) {
    rotation[pass].kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
    rotation[pass].block = format.rotation_block;
    rotation[pass].seed = static_cast<uint32_t>(pass);
  }
  Random random(1);
  std::vector<float> w(static_cast<size_t>(rows * kEncodeCols));
  for (float& v : w)
    v = static_cast<float>(random.normal());
  const auto read_rows = [&](int64_t begin, int64_t end, float* out) {
    std::copy(w.begin() + begin * kEncodeCols, w.begin() + end * kEncodeCols, out);
  };
  const double begin = thread_seconds();
  encode_tensor(format, rotation, {}, rows, kEncodeCols, read_rows, one, nullptr, nullptr);
  return thread_seconds() - begin;
}

// Returns the speed of the fastest repetition, with as many rows as are needed to be timed.
double encode_speed(const Format& format, int repetitions, ThreadPool& one) {
  int64_t rows = 16;
  double best = encode_seconds(format, rows, one);
  while (best < kMinSeconds && rows < kMostEncodeRows) {
    InterruptGuard::check();
    best = encode_seconds(format, rows *= 4, one);
  }
  for (int r = 1; r < repetitions; ++r) {
    InterruptGuard::check();
    best = std::min(best, encode_seconds(format, rows, one));
  }
  return static_cast<double>(rows * kEncodeCols) / best;
}

FormatSpeed measure(const Format& format, int repetitions, double bandwidth, ThreadPool& one,
                    ThreadPool& pool) {
  FormatSpeed speed{};
  speed.format = &format;
  speed.encode = encode_speed(format, repetitions, one);
  MatmulBench cached(format, kCachedShape, 1, 0, one);
  speed.decode = static_cast<double>(kCachedShape.rows * kCachedShape.cols) /
                 cached.measure(1, repetitions, thread_seconds);
  MatmulBench memory(format, kMemoryShape, 1, kColdBytes, pool);
  speed.memory = static_cast<double>(memory.bytes()) / memory.measure(1, repetitions);
  speed.share = speed.memory / bandwidth;
  return speed;
}

std::string show(const std::vector<FormatSpeed>& speeds, const std::string& output) {
  if (output == "json") {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const FormatSpeed& s : speeds) {
      list.push_back({{"type", s.format->name},
                      {"bpw", nominal_bits(*s.format)},
                      {"encode_weights_per_s", s.encode},
                      {"decode_weights_per_s", s.decode},
                      {"gb_per_s", s.memory / 1e9},
                      {"bandwidth_share", s.share}});
    }
    return format_json(list, 2) + "\n";
  }
  const bool md = output == "md";
  std::string text =
      md ? "| type | bpw | encode Mw/s, one core | decode Gw/s, one core, L2 | GB/s, memory | of "
           "bandwidth |\n|---|---|---|---|---|---|\n"
         : "type,bpw,encode_mw_per_s,decode_gw_per_s,gb_per_s,bandwidth_share\n";
  for (const FormatSpeed& s : speeds) {
    const std::string cells[] = {
        std::string(s.format->name),           fmt::format("{:.3f}", nominal_bits(*s.format)),
        fmt::format("{:.3g}", s.encode / 1e6), fmt::format("{:.2f}", s.decode / 1e9),
        fmt::format("{:.2f}", s.memory / 1e9), fmt::format("{:.3f}", s.share)};
    const std::string line = fmt::format("{}", fmt::join(cells, md ? " | " : ","));
    text += md ? "| " + line + " |\n" : line + "\n";
  }
  return text;
}

}  // namespace

std::string bench_formats(const FormatBenchOptions& options, ThreadPool& pool) {
  std::vector<const Format*> formats;
  for (const std::string& type : options.types)
    formats.push_back(&get_format(type));
  if (formats.empty()) {
    for (const Format* format : listed_formats()) {
      if (!format->dense) formats.push_back(format);
    }
  }
  const double bandwidth = measure_read_bandwidth(pool);
  ThreadPool one(1);
  std::vector<FormatSpeed> speeds;
  for (const Format* format : formats)
    speeds.push_back(measure(*format, options.repetitions, bandwidth, one, pool));
  return show(speeds, options.output);
}

}  // namespace walsh::cli
