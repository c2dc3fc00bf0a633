#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/spelling.h"
#include "cli/terminal.h"
#include "io/json.h"

namespace walsh::cli {
namespace {

constexpr size_t kColumns = 11;
using Row = std::array<std::string, kColumns>;

std::string markdown(const std::vector<BenchResult>& results) {
  std::vector<Row> rows = {{"model", "size", "params", "type", "bpw", "threads", "test", "t/s",
                            "MB/token", "GB/s", "share"}};
  for (const BenchResult& r : results) {
    rows.push_back({r.model, human_bytes(r.bytes), human_count(r.params), r.type,
                    fmt::format("{:.3f}", r.bpw), fmt::format("{}", r.threads), r.test,
                    fmt::format("{:.2f} +- {:.2f}", r.mean(), r.stddev()),
                    fmt::format("{:.1f}", r.bytes_per_token / 1e6),
                    fmt::format("{:.2f}", r.bytes_per_s() / 1e9),
                    r.test.starts_with("pp")
                        ? fmt::format("{:.0f} % of {} peak", 100 * r.peak_share(), r.peak_kind)
                        : fmt::format("{:.0f} % of bandwidth", 100 * r.bandwidth_share())});
  }
  Row::size_type widths[kColumns] = {};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < kColumns; ++i)
      text += fmt::format("| {:<{}} ", rows[r][i], widths[i]);
    text += "|\n";
    if (r > 0) continue;
    for (const auto width : widths)
      text += fmt::format("| {} ", std::string(width, '-'));
    text += "|\n";
  }
  if (!results.empty()) {
    text += fmt::format(
        "\nmeasured in this run: read bandwidth {:.1f} GB/s, {} peak {:.0f} GMAC/s"
        " ({}, {}); {:.2f} G weights loaded in {:.2f} s\n",
        results.back().bandwidth / 1e9, results.back().peak_kind, results.back().peak / 1e9,
        counted(results.back().threads, "thread"), results.back().device,
        static_cast<double>(results.back().params) / 1e9, results.back().load_seconds);
    const BenchResult& last = results.back();
    if (std::any_of(results.begin(), results.end(),
                    [](const BenchResult& r) { return r.bandwidth_share() > 1; }))
      text += "more than 100 % of bandwidth: the weights stay in the caches of the processor\n";
    if (last.routing_seconds > 0) {
      text += fmt::format(
          "choosing the experts of a token takes {:.1f} us in all layers; its routers are {:.1f} "
          "MB\n",
          1e6 * last.routing_seconds, last.router_bytes / 1e6);
    }
  }
  return text;
}

std::string csv(const std::vector<BenchResult>& results) {
  std::string text =
      "model,type,bpw,threads,device,test,tokens_per_s,stddev,bytes_per_token,gb_per_s,"
      "bandwidth_share,peak_share\n";
  for (const BenchResult& r : results) {
    text +=
        fmt::format("\"{}\",{},{:.4f},{},{},{},{:.4f},{:.4f},{:.0f},{:.4f},{:.4f},{:.4f}\n",
                    r.model, r.type, r.bpw, r.threads, r.device, r.test, r.mean(), r.stddev(),
                    r.bytes_per_token, r.bytes_per_s() / 1e9, r.bandwidth_share(), r.peak_share());
  }
  return text;
}

std::string json(const std::vector<BenchResult>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BenchResult& r : results) {
    list.push_back({{"model", r.model},
                    {"type", r.type},
                    {"bpw", r.bpw},
                    {"threads", r.threads},
                    {"device", r.device},
                    {"load_seconds", r.load_seconds},
                    {"test", r.test},
                    {"tokens_per_s", r.mean()},
                    {"stddev", r.stddev()},
                    {"bytes_per_token", r.bytes_per_token},
                    {"gb_per_s", r.bytes_per_s() / 1e9},
                    {"bandwidth_share", r.bandwidth_share()},
                    {"bandwidth_gb_per_s", r.bandwidth / 1e9},
                    {"routing_seconds_per_token", r.routing_seconds},
                    {"router_bytes_per_token", r.router_bytes},
                    {"macs_per_token", r.macs_per_token},
                    {r.peak_kind + "_peak_macs_per_s", r.peak},
                    {r.peak_kind + "_share", r.peak_share()},
                    {"bytes", r.bytes},
                    {"params", r.params},
                    {"samples", r.tokens_per_s}});
  }
  return format_json(list, 2) + "\n";
}

}  // namespace

double BenchResult::mean() const {
  if (tokens_per_s.empty()) return 0;
  return std::accumulate(tokens_per_s.begin(), tokens_per_s.end(), 0.0) /
         static_cast<double>(tokens_per_s.size());
}

double BenchResult::stddev() const {
  if (tokens_per_s.size() < 2) return 0;
  const double center = mean();
  double squares = 0;
  for (const double x : tokens_per_s)
    squares += (x - center) * (x - center);
  return std::sqrt(squares / static_cast<double>(tokens_per_s.size() - 1));
}

std::string bench_text(const std::vector<BenchResult>& results, const std::string& format) {
  if (format == "csv") return csv(results);
  return format == "json" ? json(results) : markdown(results);
}

}  // namespace walsh::cli
