// `walsh inspect FILE` shows the content of a walsh file, and with --check verifies it.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/plan.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/inspect.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "codec/encode/bounds.h"
#include "import/gguf_checkpoint.h"
#include "io/json.h"
#include "io/printable.h"
#include "quantize/file/verify.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"
#include "weights/open.h"
#include "weights/walsh_file.h"

namespace walsh::cli {
namespace {

constexpr int kMissedBoundStatus = 1;

struct Options {
  std::string file, source;
  MachineOptions machine;
  bool check = false, json = false;
};

struct Row {
  const StoredTensor* tensor;
  bool calibrated;
  std::optional<double> measured;  // it is the NMSE against the source

  double bits() const {
    const double weights = static_cast<double>(tensor->rows) * static_cast<double>(tensor->cols);
    return weights > 0 ? 8.0 * static_cast<double>(tensor->bytes) / weights : 0;
  }
  double error() const { return measured.value_or(tensor->nmse); }
  bool suspicious() const { return !calibrated && misses_bound(*tensor->format, error()); }
};

struct Totals {
  uint64_t weights = 0, linear_weights = 0, linear_bytes = 0, suspicious = 0;

  explicit Totals(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const auto count = static_cast<uint64_t>(row.tensor->rows * row.tensor->cols);
      weights += count;
      suspicious += row.suspicious();
      if (!row.tensor->linear) continue;
      linear_weights += count;
      linear_bytes += row.tensor->bytes;
    }
  }
  double bits() const {
    return linear_weights
               ? 8.0 * static_cast<double>(linear_bytes) / static_cast<double>(linear_weights)
               : 0;
  }
};

void verify_checksums(const WalshFile& file, ProgressBar& bar) {
  uint64_t done = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    InterruptGuard::check();
    file.verify(tensor);
    bar.update(++done, file.tensors().size(), tensor.name);
  }
  bar.clear();
}

void measure_errors(WalshFile& file, const Options& options, std::vector<Row>& rows,
                    ProgressBar& bar) {
  ThreadPool pool(options.machine.threads);
  const auto checkpoint = open_stored(options.source);
  const ModelPlan plan = read_plan(checkpoint->config_json(), options.source);
  uint64_t done = 0;
  for (Row& row : rows) {
    InterruptGuard::check();
    if (!row.tensor->format->dense) {
      row.measured = measure_nmse(file, *checkpoint, plan, row.tensor->name, pool);
    }
    bar.update(++done, rows.size(), row.tensor->name);
  }
  bar.clear();
}

void print_json(const WalshFile& file, const std::vector<Row>& rows, bool checked) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    const StoredTensor& t = *row.tensor;
    nlohmann::ordered_json entry = {{"name", t.name},         {"shape", {t.rows, t.cols}},
                                    {"type", t.format->name}, {"source_type", t.source_type},
                                    {"bpw", row.bits()},      {"bytes", t.bytes},
                                    {"nmse", t.nmse},         {"checksum", t.checksum.hex()}};
    for (int pass = 0; pass < t.format->passes; ++pass) {
      entry["rotation"].push_back(rotation_text(t.rotation[pass]));
    }
    if (row.measured) entry["nmse_measured"] = *row.measured;
    tensors.push_back(std::move(entry));
  }
  const Totals totals(rows);
  nlohmann::ordered_json json = {
      {"file", file.path()},          {"bytes", file.file_bytes()},
      {"producer", file.producer()},  {"recipe", parse_json(file.recipe(), file.path())},
      {"weights", totals.weights},    {"bpw", totals.bits()},
      {"checked", checked},           {"suspicious", totals.suspicious},
      {"tensors", std::move(tensors)}};
  if (file.fold()) json["folded"] = rotation_text(*file.fold());
  print_result("{}\n", format_json(json, 2));
}

std::string error_text(const Row& row) {
  if (row.tensor->format->dense) return "-";
  std::string text = fmt::format("{:.4g}", row.tensor->nmse);
  if (row.measured) text += fmt::format(" (measured {:.4g})", *row.measured);
  return text;
}

void print_table(const WalshFile& file, const std::vector<Row>& rows) {
  print_result("file      {} ({}, written by {})\n", one_line(file.path()),
               human_bytes(file.file_bytes()), one_line(file.producer()));
  print_result("recipe    {}\n", one_line(file.recipe()));
  if (!rows.empty() && rows.front().calibrated) {
    print_result(
        "          calibrated: NMSE is that of the weights, which grows so that the output's error "
        "shrinks\n");
  }
  if (file.fold())
    print_result("folded    {} in the residual stream\n", rotation_text(*file.fold()));
  print_result("\n");
  print_result("{:<46} {:>14} {:<10} {:>8} {:>12}  {:<26} {}\n", "tensor", "shape", "type", "bits",
               "bytes", "rotation", "NMSE");
  for (const Row& row : rows) {
    const StoredTensor& t = *row.tensor;
    const std::string shape =
        t.rows == 1 ? fmt::format("{}", t.cols) : fmt::format("{} x {}", t.rows, t.cols);
    print_result("{:<46} {:>14} {:<10} {:>8.4f} {:>12}  {:<26} {}\n", t.name, shape, t.format->name,
                 row.bits(), t.bytes, t.format->dense ? "-" : rotation_text(t.rotation[0]),
                 error_text(row));
  }
  const Totals totals(rows);
  print_result("\n{} tensors, {} weights, {} in linear layers at {:.4f} bits per weight\n",
               rows.size(), human_count(totals.weights), human_count(totals.linear_weights),
               totals.bits());
}

void print_check(const std::vector<Row>& rows) {
  print_result("checksums of {} tensors are right\n", rows.size());
  for (const Row& row : rows) {
    if (!row.suspicious()) continue;
    print_warning(missed_bound_text(row.tensor->name, *row.tensor->format, row.error()));
  }
}

int inspect(const Options& options) {
  options.machine.apply();
  if (!options.source.empty() && !options.check) {
    throw Error(ErrorCode::usage, "--source", "works only with --check");
  }
  const InterruptGuard interrupt;
  ProgressBar bar(is_terminal(STDERR_FILENO));
  std::error_code unreadable;
  const bool is_folder = std::filesystem::is_directory(options.file, unreadable);
  if (is_folder || is_foreign_gguf(options.file)) {
    if (!options.source.empty())
      throw Error(ErrorCode::usage, "--source", "works only with files that walsh quantize wrote");
    (is_folder ? inspect_folder : inspect_gguf)(
        options.file, options.check, options.json,
        [&](size_t done, size_t count, const std::string& name) {
          InterruptGuard::check();
          bar.update(done, count, name);
          if (done + 1 == count) bar.clear();
        });
    return 0;
  }
  const auto file = WalshFile::open(options.file);
  print_notes(file->notes());
  if (!options.source.empty()) check_measurable(*file);
  std::vector<Row> rows;
  const bool calibrated = parse_json(file->recipe(), file->path()).contains("calibration");
  for (const StoredTensor& tensor : file->tensors())
    rows.push_back({&tensor, calibrated, std::nullopt});
  if (options.check) verify_checksums(*file, bar);
  if (!options.source.empty()) measure_errors(*file, options, rows, bar);
  if (options.json) {
    print_json(*file, rows, options.check);
  } else {
    print_table(*file, rows);
    if (options.check) print_check(rows);
  }
  return options.check && Totals(rows).suspicious > 0 ? kMissedBoundStatus : 0;
}

}  // namespace

Action add_inspect(Command& command) {
  const auto options = std::make_shared<Options>();
  command.add("FILE", &options->file, "A model: a file, folder, or name (walsh list)",
              {.required = true, .replacement = found_model});
  command.add("--check", &options->check, "Verify the checksum of every tensor");
  command.add("--source", &options->source,
              "With --check: measure every error again, against the checkpoint it was made from",
              {.replacement = found_model});
  command.add("--json", &options->json, "Everything as JSON");
  options->machine.add_to(command);
  return [options] { return inspect(*options); };
}

}  // namespace walsh::cli
