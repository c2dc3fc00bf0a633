#include "cli/inspect.h"

#include <fmt/format.h>

#include "arch/config.h"
#include "cli/output.h"
#include "io/json.h"
#include "io/printable.h"
#include "weights/checkpoint_source.h"

namespace walsh::cli {
namespace {

struct Row {
  const TensorInfo* info;
  double bits() const {
    return 8.0 * static_cast<double>(info->bytes) / static_cast<double>(info->elements());
  }
  std::string shape() const { return fmt::format("{}", fmt::join(info->shape, " x ")); }
};

// Returns the mean bits per weight of the matrices, which are nearly all of the file.
double mean_bits(const std::vector<Row>& rows) {
  double bytes = 0, weights = 0;
  for (const Row& row : rows) {
    if (row.info->shape.size() < 2) continue;
    bytes += static_cast<double>(row.info->bytes);
    weights += static_cast<double>(row.info->elements());
  }
  return weights > 0 ? 8 * bytes / weights : 0;
}

void print_json(const Checkpoint& checkpoint, const std::vector<Row>& rows, bool checked) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    tensors.push_back({{"name", row.info->name},
                       {"shape", row.info->shape},
                       {"type", row.info->dtype_text},
                       {"bpw", row.bits()},
                       {"bytes", row.info->bytes}});
  }
  const nlohmann::ordered_json json = {
      {"file", checkpoint.folder()},
      {"config", parse_json(checkpoint.config_json(), checkpoint.config_place())},
      {"bpw", mean_bits(rows)},
      {"checked", checked},
      {"tensors", std::move(tensors)}};
  print_result("{}\n", format_json(json, 2));
}

void print_table(const Checkpoint& checkpoint, const ModelConfig& config,
                 const std::vector<Row>& rows) {
  print_result("file      {} (GGUF of another program)\n", one_line(checkpoint.folder()));
  print_result("model     {}, {} layers, hidden size {}, vocabulary {}\n\n", config.family,
               config.layers.size(), config.hidden, config.vocab);
  print_result("{:<46} {:>14} {:<10} {:>8} {:>12}\n", "tensor", "shape", "type", "bits", "bytes");
  for (const Row& row : rows) {
    print_result("{:<46} {:>14} {:<10} {:>8.4f} {:>12}\n", row.info->name, row.shape(),
                 row.info->dtype_text, row.bits(), row.info->bytes);
  }
  print_result("\n{} tensors, matrices at {:.4f} bits per weight\n", rows.size(), mean_bits(rows));
}

}  // namespace

void inspect_gguf(const std::string& path, bool check, bool json,
                  const std::function<void(size_t, size_t, const std::string&)>& step) {
  const Checkpoint checkpoint = open_checkpoint(path);
  const ModelConfig config = parse_config(checkpoint.config_json(), checkpoint.config_place());
  std::vector<Row> rows;
  for (const TensorInfo& info : checkpoint.tensors())
    rows.push_back({&info});
  if (check) {
    CheckpointSource source = CheckpointSource::open(path);
    const std::vector<std::string> names = source.names();
    for (size_t i = 0; i < names.size(); ++i) {
      step(i, names.size(), names[i]);
      source.load(names[i]);
      source.release(names[i]);
    }
  }
  if (json) {
    print_json(checkpoint, rows, check);
  } else {
    print_table(checkpoint, config, rows);
    if (check) print_result("every tensor can be read\n");
  }
}

}  // namespace walsh::cli
