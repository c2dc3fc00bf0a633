#include "cli/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/output.h"
#include "cli/terminal.h"
#include "io/json.h"
#include "io/printable.h"
#include "weights/finite.h"
#include "weights/open.h"

namespace walsh::cli {
namespace {

struct Row {
  std::string name;
  StoredForm form;
  int64_t rows = 0, cols = 0;
  uint64_t bytes = 0;

  double bits() const {
    return 8.0 * static_cast<double>(bytes) /
           (static_cast<double>(rows) * static_cast<double>(cols));
  }
};

struct Totals {
  uint64_t weights = 0, bytes = 0, coded_weights = 0, coded_bytes = 0;

  explicit Totals(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const auto count = static_cast<uint64_t>(row.rows * row.cols);
      weights += count;
      bytes += row.bytes;
      if (row.form.format->dense) continue;
      coded_weights += count;
      coded_bytes += row.bytes;
    }
  }
  double coded_bits() const {
    if (coded_weights == 0) return 0;
    return 8.0 * static_cast<double>(coded_bytes) / static_cast<double>(coded_weights);
  }
};

void print_json(const WeightSource& source, const std::vector<Row>& rows, bool checked) {
  OrderedJson tensors = OrderedJson::array();
  for (const Row& row : rows) {
    OrderedJson entry = {{"name", row.name},
                         {"shape", {row.rows, row.cols}},
                         {"type", row.form.format->name},
                         {"bpw", row.bits()},
                         {"bytes", row.bytes}};
    for (int pass = 0; pass < row.form.format->passes; ++pass)
      entry["rotation"].push_back(rotation_text(row.form.rotation[pass]));
    tensors.push_back(std::move(entry));
  }
  const Totals totals(rows);
  const OrderedJson json = {{"file", source.path()},     {"bytes", totals.bytes},
                            {"weights", totals.weights}, {"bpw", totals.coded_bits()},
                            {"checked", checked},        {"tensors", std::move(tensors)}};
  print_result("{}\n", format_json(json, 2));
}

void print_table(const WeightSource& source, const std::vector<Row>& rows) {
  const Totals totals(rows);
  print_result("folder    {} ({} of tensors)\n\n", one_line(source.path()),
               human_bytes(totals.bytes));
  print_result("{:<46} {:>14} {:<10} {:>8} {:>12}  {}\n", "tensor", "shape", "type", "bits",
               "bytes", "rotation");
  for (const Row& row : rows) {
    const std::string shape =
        row.rows == 1 ? fmt::format("{}", row.cols) : fmt::format("{} x {}", row.rows, row.cols);
    print_result("{:<46} {:>14} {:<10} {:>8.4f} {:>12}  {}\n", one_line(row.name), shape,
                 row.form.format->name, row.bits(), row.bytes,
                 row.form.format->dense ? "-" : rotation_text(row.form.rotation[0]));
  }
  print_result("\n{} tensors, {} weights, ", rows.size(), human_count(totals.weights));
  if (totals.coded_weights == 0) {
    print_result("none of them coded\n");
  } else {
    print_result("{} of them coded at {:.4f} bits per weight\n", human_count(totals.coded_weights),
                 totals.coded_bits());
  }
}

}  // namespace

void inspect_folder(const std::string& path, bool check, bool json,
                    const std::function<void(size_t, size_t, const std::string&)>& step) {
  const auto source = open_stored(path);
  print_notes(source->notes());
  std::vector<std::string> names = source->names();
  std::sort(names.begin(), names.end());
  std::vector<Row> rows;
  for (const std::string& name : names) {
    step(rows.size(), names.size(), name);
    const Tensor tensor = source->load(name);
    // There are no checksums, so damage shows only as values that are not finite.
    if (check) check_finite(tensor, path + ": tensor " + printable(name));
    rows.push_back({name, source->form_of(name), tensor.rows, tensor.cols,
                    tensor_bytes(*tensor.format, tensor.rows, tensor.cols)});
    source->release(name);
  }
  if (json) {
    print_json(*source, rows, check);
  } else {
    print_table(*source, rows);
    if (check) print_result("every value of {} tensors is finite\n", rows.size());
  }
}

}  // namespace walsh::cli
