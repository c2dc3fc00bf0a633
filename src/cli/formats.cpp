// `walsh formats` shows every storage format, its cost, the bound of its error and what it is for.
// With --measure it also shows the measured error.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/thread_pool.h"
#include "cache/cache_type.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "codec/kernels.h"
#include "eval/format_check.h"
#include "io/json.h"

namespace walsh::cli {
namespace {

struct Options {
  std::vector<std::string> names;
  MachineOptions machine;
  bool check = false, cache = false, kernels = false, measure = false, variants = false,
       json = false;

  // Named formats are measured; a list of all is shown at once unless errors are asked for.
  bool measures() const { return measure || check || !names.empty(); }
};

// Cache types are listed for this head dimension.
constexpr int64_t kHeadDim = 128;

std::string_view shown(const FormatReport& report) {
  return listed_name(get_format(report.name));
}

nlohmann::ordered_json json_of(const std::vector<FormatReport>& reports) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FormatReport& r : reports) {
    const nlohmann::ordered_json nmse = {
        {"normal", r.nmse_normal}, {"t4", r.nmse_t4}, {"outlier", r.nmse_outlier}};
    list.push_back({{"name", shown(r)}, {"bpw", r.bpw}, {"nmse", nmse}, {"bound", r.bound}});
  }
  return list;
}

nlohmann::ordered_json json_of_cache_types() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CacheType& type : all_cache_types()) {
    list.push_back({{"name", type.name},
                    {"cache", true},
                    {"bpv", cache_bits(type, kHeadDim)},
                    {"bound", type.bound},
                    {"note", type.note}});
  }
  return list;
}

void print_cache_types() {
  print_result("{:<22} {:>8} {:>11}  {}\n", "cache type", "bits", "bound", "of keys and values");
  for (const CacheType& type : all_cache_types()) {
    const std::string bound = type.bound > 0 ? fmt::format("{:.4g}", type.bound) : "-";
    print_result("{:<22} {:>8.4f} {:>11}  {}\n", type.name, cache_bits(type, kHeadDim), bound,
                 type.note);
  }
}

void print_table(const std::vector<FormatReport>& reports) {
  print_result("{:<22} {:>8} {:>11} {:>11} {:>11} {:>11}\n", "format", "bpw", "N(0,1)", "t(4)",
               "outlier", "bound");
  for (const FormatReport& r : reports) {
    const std::string bound = r.bound > 0 ? fmt::format("{:.4g}", r.bound) : "-";
    print_result("{:<22} {:>8.4f} {:>11.4g} {:>11.4g} {:>11.4g} {:>11}{}\n", shown(r), r.bpw,
                 r.nmse_normal, r.nmse_t4, r.nmse_outlier, bound, r.passes() ? "" : "  MISSED");
  }
}

// Returns how many reports miss their bound, and writes a line about each on standard error.
int missed(const std::vector<FormatReport>& reports, Isa isa) {
  int count = 0;
  for (const FormatReport& r : reports) {
    if (r.passes()) continue;
    ++count;
    message("walsh: {}: NMSE {:.6g} exceeds the bound {:.6g} ({})\n", r.name, r.nmse_normal,
            r.bound, isa_name(isa));
  }
  return count;
}

// Returns whether another type has less error at no more bits and is faster (docs/results.md, "The
// ladder").
bool is_beaten(const Format& format) {
  return format.name == "q4_0" || format.name == "pq3";
}

// Returns the formats that are measured if no names are given, which are those that a user chooses
// among, or all.
std::vector<std::string> default_names(bool all) {
  std::vector<std::string> names;
  for (const Format* format : listed_formats())
    if (!is_beaten(*format)) names.emplace_back(format->name);
  if (!all) return names;
  names.clear();
  for (const Format& format : all_formats())
    names.emplace_back(format.name);
  return names;
}

// Checks the bounds with every other instruction set of this machine and returns how many checks
// fail.
int missed_elsewhere(ThreadPool& pool, std::vector<std::string> names) {
  const auto middle = std::stable_partition(names.begin(), names.end(), checked_by_sample);
  const std::vector<std::string> sampled(names.begin(), middle), measured(middle, names.end());
  const Isa chosen = current_isa();
  const std::vector<CodedSample> expected = coded_samples(pool, sampled);
  int count = 0;
  for (const Isa isa : supported_isas()) {
    if (isa == chosen) continue;
    force_isa(isa_name(isa));
    if (!measured.empty()) count += missed(check_formats(pool, measured, Measure::normal), isa);
    const std::vector<CodedSample> found = coded_samples(pool, sampled);
    for (size_t i = 0; i < sampled.size(); ++i) {
      if (found[i] == expected[i]) continue;
      ++count;
      message("walsh: {}: {} encodes a sample differently from {}\n", sampled[i], isa_name(isa),
              isa_name(chosen));
    }
  }
  return count;
}

nlohmann::ordered_json json_of_kernels() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Format* format : listed_formats()) {
    nlohmann::ordered_json entry = {{"name", listed_name(*format)}};
    for (const KernelRow& row : all_kernels())
      entry[row.gpu ? "gpu" : "cpu"][std::string(row.name)] = has_kernel(*format, row.kernel);
    list.push_back(std::move(entry));
  }
  return list;
}

// Prints a column for every kernel, then a line about each of them.
void print_kernels() {
  const auto title = [](const KernelRow& row) {
    return fmt::format("{} {}", row.gpu ? "GPU" : "CPU", row.name);
  };
  std::string head = fmt::format("{:<22}", "format");
  for (const KernelRow& row : all_kernels())
    head += fmt::format(" {:>15}", title(row));
  print_result("{}\n", head);
  for (const Format* format : listed_formats()) {
    std::string line = fmt::format("{:<22}", listed_name(*format));
    for (const KernelRow& row : all_kernels())
      line += fmt::format(" {:>15}", has_kernel(*format, row.kernel) ? "yes" : "-");
    print_result("{}\n", line);
  }
  print_result("\n");
  for (const KernelRow& row : all_kernels())
    print_result("{}: {}\n", title(row), row.what);
}

int list_kernels(bool json) {
  if (json) {
    print_result("{}\n", format_json(json_of_kernels(), 2));
  } else {
    print_kernels();
  }
  return 0;
}

int list_cache_types(bool json) {
  if (json) {
    print_result("{}\n", format_json(json_of_cache_types(), 2));
  } else {
    print_cache_types();
  }
  return 0;
}

nlohmann::ordered_json json_of_bounds(const std::vector<std::string>& names) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string& name : names) {
    const Format& format = get_format(name);
    list.push_back({{"name", listed_name(format)},
                    {"bpw", nominal_bits(format)},
                    {"bound", format.bound},
                    {"note", format.note}});
  }
  return list;
}

void print_bounds(const std::vector<std::string>& names) {
  print_result("{:<22} {:>8} {:>11}  {}\n", "format", "bpw", "error below", "what it is");
  for (const std::string& name : names) {
    const Format& format = get_format(name);
    const std::string bound = format.bound > 0 ? fmt::format("{:.4g}", format.bound) : "-";
    print_result("{:<22} {:>8.4f} {:>11}  {}\n", listed_name(format), nominal_bits(format), bound,
                 format.note);
  }
  print_result(
      "\nThe error is the mean squared error of normally distributed weights, relative to their\n"
      "mean square; --measure measures it, also for other distributions (about half a minute).\n");
}

void print_about_variants() {
  print_result(
      "\nq4_0 and pq3 exist, too; tq4 and tc3 have less error at fewer bits and are faster.\n"
      "Variants (--variants lists them): --group full (tq2, tq3, tq4), --levels strict,\n"
      "ternary, ternary-paper (itq3_s), --codebook layer (pq3), tc2:hq to tc4:hq (tc2 to tc4 "
      "with\nless error, on CPUs only). --group 64 and 32 (tq2:g64 to tq4+4:g32) have more "
      "scales than tq*\nand less error, on CPUs only; name them to measure them.\n");
}

// Prints the list; one of all formats ends with the cache types.
void print_json(nlohmann::ordered_json list, const Options& options) {
  if (options.names.empty()) {
    for (const auto& type : json_of_cache_types())
      list.push_back(type);
  }
  print_result("{}\n", format_json(list, 2));
}

void print_end_of_list(const Options& options) {
  if (!options.names.empty()) return;
  if (!options.variants && !options.check) print_about_variants();
  print_result("\n");
  print_cache_types();
}

int list_bounds(const std::vector<std::string>& names, const Options& options) {
  if (options.json) {
    print_json(json_of_bounds(names), options);
    return 0;
  }
  print_bounds(names);
  print_end_of_list(options);
  return 0;
}

void print_reports(const std::vector<FormatReport>& reports, const Options& options) {
  if (options.json) return print_json(json_of(reports), options);
  print_table(reports);
  print_end_of_list(options);
}

int formats(const Options& options) {
  if (options.cache) return list_cache_types(options.json);
  if (options.kernels) return list_kernels(options.json);
  options.machine.apply();
  const std::vector<std::string> names =
      options.names.empty() ? default_names(options.variants || options.check) : options.names;
  if (!options.measures()) return list_bounds(names, options);
  const InterruptGuard interrupt;
  ThreadPool pool(options.machine.threads);
  const std::vector<FormatReport> reports = check_formats(pool, names);
  print_reports(reports, options);
  if (!options.check) return 0;
  int count = missed(reports, current_isa());
  if (options.machine.isa.empty()) count += missed_elsewhere(pool, names);
  if (!options.json && count == 0) print_result("all bounds hold\n");
  return count == 0 ? 0 : 1;
}

}  // namespace

Action add_formats(Command& command) {
  const auto options = std::make_shared<Options>();
  const Flag& names = command.add(
      "NAME", &options->names, "Types to measure (default: a list of all, and of the cache types)");
  command.add("--cache", &options->cache, "List only the types of the cache of keys and values",
              {.excluded = &names});
  command.add("--kernels", &options->kernels,
              "List which kernels of CPUs and GPUs compute with which type", {.excluded = &names});
  command.add("--measure", &options->measure,
              "Measure the error of all types, for three distributions of weights");
  command.add("--check", &options->check,
              "Fail if a type misses its error bound with any instruction set of this machine");
  command.add("--variants", &options->variants, "List, or measure, the variants of types, too",
              {.excluded = &names});
  command.add("--json", &options->json, "The table as JSON");
  options->machine.add_to(command);
  return [options] { return formats(*options); };
}

}  // namespace walsh::cli
