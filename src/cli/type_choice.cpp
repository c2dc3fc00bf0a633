#include "cli/type_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "arch/config.h"
#include "base/cuda/device.h"
#include "base/memory.h"
#include "cli/terminal.h"
#include "io/json.h"
#include "io/printable.h"
#include "model/positions.h"
#include "quantize/pipeline/open.h"
#include "quantize/pipeline/pipeline.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh::cli {
namespace {

// These figures are copied from docs/results.json; tools/make_guide.py --check compares them.
struct TypeFigures {
  const char* type;
  // This is the divergence from the unquantized model, a trained one of 27 million weights.
  double kld;
  double cpu, gpu;  // tokens/s are relative to bf16; 0 means not measured
  const char* use;
};
constexpr TypeFigures kTypes[] = {
    // choice:begin
    {"tq4+4", 0.00044, 1.9, 1.5, "nothing may be lost, and there is room"},
    {"tq4+2", 0.0046, 2.5, 0.0, "next to nothing may be lost"},
    {"tq4", 0.038, 4.0, 3.9, "start here: fast everywhere, little is lost"},
    {"tc4", 0.026, 4.8, 3.4, "better than tq4 at its size, slower to make"},
    {"tc3.5", 0.049, 5.0, 3.2, "tc4 does not fit"},
    {"tq3", 0.17, 4.9, 4.5, "a GPU, and speed counts more than quality"},
    {"tc3", 0.095, 5.3, 3.2, "the model does not fit otherwise"},
    {"tc2.5", 0.2, 5.7, 3.2, "the largest model that fits"},
    {"tq2", 0.87, 6.9, 5.0, "only as a draft or to try things out"},
    // choice:end
};
// Types that fit are preferred in this order.
constexpr const char* kPreferred[] = {"tq4", "tc3.5", "tc3", "tc2.5", "tq2"};

struct Row {
  const TypeFigures* figures;
  double bits;
  uint64_t bytes;  // the file takes this many bytes
  bool in_memory, on_gpu;
};

struct Machine {
  uint64_t memory = 0, gpu = 0;  // these bytes are available; 0 means unknown, or no GPU
  std::string gpu_name;

  Machine() : memory(available_memory()) {
    for (const cuda::DeviceInfo& device : cuda::devices()) {
      if (device.free_bytes <= gpu) continue;
      gpu = device.free_bytes;
      gpu_name = device.name;
    }
  }
};

// Returns the memory for the keys and values of a conversation and for computing.
uint64_t needed_besides(const ModelConfig& config) {
  constexpr uint64_t kWorkspace = uint64_t{256} << 20;
  double bytes = 0;  // a position takes this many bytes
  for (const LayerDesc& layer : config.layers)
    bytes += position_bytes(layer.attention, {});
  return static_cast<uint64_t>(bytes) * static_cast<uint64_t>(choose_positions(config, 0)) +
         kWorkspace;
}

// Returns the recipe of `walsh quantize MODEL OUT --type TYPE` without other flags.
Recipe plain_recipe(const char* type) {
  Recipe recipe;
  recipe.type = &get_format(type);
  recipe.embed_type = recipe.head_type = default_ends(*recipe.type);
  return recipe;
}

std::vector<Row> rows_of(const std::string& model, const Machine& machine, uint64_t besides,
                         ThreadPool& pool) {
  std::vector<Row> rows;
  for (const TypeFigures& figures : kTypes) {
    const auto source = open_compressor(model, plain_recipe(figures.type), pool);
    const QuantizeSummary summary = predict(*source);
    Row row{&figures, summary.bits_per_weight(), summary.file_bytes, true, false};
    row.in_memory = machine.memory == 0 || row.bytes + besides <= machine.memory;
    row.on_gpu = row.bytes + besides <= machine.gpu;
    rows.push_back(row);
  }
  return rows;
}

// Returns the recommended row, which is the best that fits on the GPU if there is one, else in
// memory. Returns null if none fits.
const Row* best_of(const std::vector<Row>& rows) {
  for (const bool gpu : {true, false}) {
    for (const char* type : kPreferred)
      for (const Row& row : rows)
        if (std::string_view(row.figures->type) == type && (gpu ? row.on_gpu : row.in_memory))
          return &row;
  }
  return nullptr;
}

std::string next_command(const std::string& model, const Row& best) {
  return fmt::format("walsh quantize {} {} --type {}", one_line(model),
                     one_line(output_name(model, best.figures->type)), best.figures->type);
}

std::string times(double factor) {
  return factor > 0 ? fmt::format("{:.1f}x", factor) : "-";
}

std::string text_of(const std::string& model, const std::vector<Row>& rows, const Row* best,
                    const Machine& machine, uint64_t weights) {
  std::string text =
      fmt::format("{}: {} weights. This machine has {} of memory free", one_line(model),
                  human_count(weights), human_bytes(machine.memory));
  text += machine.gpu == 0 ? ", no GPU that walsh can use.\n\n"
                           : fmt::format(", and {} on {}.\n\n", human_bytes(machine.gpu),
                                         one_line(machine.gpu_name));
  text += fmt::format("  {:<7} {:>5} {:>11}  {:<9} {:>10} {:>6} {:>6}  {}\n", "type", "bits",
                      "file", "fits", "divergence", "CPU", "GPU", "when");
  for (const Row& row : rows) {
    const char* fits = row.on_gpu ? "GPU, CPU" : row.in_memory ? "CPU" : "no";
    text += fmt::format("{} {:<7} {:>5.2f} {:>11}  {:<9} {:>10.2g} {:>6} {:>6}  {}\n",
                        &row == best ? '*' : ' ', row.figures->type, row.bits,
                        human_bytes(row.bytes), fits, row.figures->kld, times(row.figures->cpu),
                        times(row.figures->gpu), row.figures->use);
  }
  text +=
      "\ndivergence: KL divergence from the unquantized model, of a small model; larger ones lose\n"
      "less. CPU, GPU: tokens per second, in multiples of the unquantized model's; -: not "
      "measured.\n"
      "If a model does not fit on a GPU, the CPU runs part of it.\n";
  text += best == nullptr ? "\nNone of these fits into the memory that is free.\n"
                          : "\nNext: " + next_command(model, *best) + "\n";
  return text +
         "Also: --bpw 3.25 chooses a type for every tensor, --size 5GiB for a file of that size;\n"
         "walsh formats lists all types.\n";
}

std::string json_of(const std::string& model, const std::vector<Row>& rows, const Row* best,
                    const Machine& machine, uint64_t weights) {
  OrderedJson types = OrderedJson::array();
  for (const Row& row : rows) {
    types.push_back({{"type", row.figures->type},
                     {"bpw", row.bits},
                     {"bytes", row.bytes},
                     {"fits_memory", row.in_memory},
                     {"fits_gpu", row.on_gpu},
                     {"kld", row.figures->kld},
                     {"cpu_speed", row.figures->cpu},
                     {"gpu_speed", row.figures->gpu}});
  }
  const OrderedJson json = {
      {"model", model},
      {"weights", weights},
      {"memory", machine.memory},
      {"gpu_memory", machine.gpu},
      {"types", std::move(types)},
      {"best", best == nullptr ? OrderedJson() : OrderedJson(best->figures->type)},
      {"next", best == nullptr ? OrderedJson() : OrderedJson(next_command(model, *best))}};
  return format_json(json, 2) + "\n";
}

}  // namespace

std::string output_name(const std::string& model, const std::string& type) {
  std::filesystem::path path(model);
  if (!path.has_filename()) path = path.parent_path();
  if (path.extension() == ".gguf") path.replace_extension();
  const std::string name = path.filename().string();
  return (name.empty() || name == "." || name == ".." ? "model" : name) + "-" + type + ".gguf";
}

std::string type_choice(const std::string& model, bool json, ThreadPool& pool) {
  const auto source = open_compressor(model, plain_recipe(kPreferred[0]), pool);
  const ModelConfig config = read_config(*source);
  const Machine machine;
  uint64_t weights = 0;
  for (const TensorPlan& tensor : source->tensors())
    weights += static_cast<uint64_t>(tensor.rows * tensor.cols);
  const std::vector<Row> rows = rows_of(model, machine, needed_besides(config), pool);
  return (json ? json_of : text_of)(model, rows, best_of(rows), machine, weights);
}

}  // namespace walsh::cli
