#include "cli/bench_count.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/bench_kernels.h"
#include "io/json.h"
#include "model/op_count.h"

namespace walsh::cli {
namespace {

struct CountRow {
  std::string part, type;
  OpCount ops;
};

std::string markdown(const std::vector<CountRow>& rows) {
  std::string text =
      "| part | type | multiplications | additions | look-ups | rotations |\n"
      "|---|---|---:|---:|---:|---:|\n";
  const auto millions = [](uint64_t n) {
    return fmt::format("{:.2f} M", static_cast<double>(n) / 1e6);
  };
  for (const CountRow& r : rows) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", r.part, r.type,
                        millions(r.ops.multiplications), millions(r.ops.additions),
                        millions(r.ops.lookups), r.ops.transforms);
  }
  return text;
}

std::string csv(const std::vector<CountRow>& rows) {
  std::string text = "part,type,multiplications,additions,lookups,rotations\n";
  for (const CountRow& r : rows) {
    text += fmt::format("{},{},{},{},{},{}\n", r.part, r.type, r.ops.multiplications,
                        r.ops.additions, r.ops.lookups, r.ops.transforms);
  }
  return text;
}

std::string json(const std::vector<CountRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CountRow& r : rows) {
    list.push_back({{"part", r.part},
                    {"type", r.type},
                    {"multiplications", r.ops.multiplications},
                    {"additions", r.ops.additions},
                    {"lookups", r.ops.lookups},
                    {"rotations", r.ops.transforms}});
  }
  return format_json(list, 2) + "\n";
}

std::string show(const std::vector<CountRow>& rows, const std::string& output) {
  if (output == "json") return json(rows);
  return output == "csv" ? csv(rows) : markdown(rows);
}

// Returns the formats of a layer's matrices, each once.
std::string types_of(const Model& model, size_t layer) {
  std::vector<std::string_view> names;
  for (const Model& part : model.all_parts()) {
    for (const Linear& linear : part.layers[layer].matrices) {
      const std::string_view name = linear.stored->name;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return fmt::format("{}", fmt::join(names, " "));
}

std::vector<CountRow> layer_rows(const Model& model) {
  std::vector<CountRow> rows;
  size_t first = 0;
  for (size_t i = 0; i < model.config.layers.size(); ++i) {
    CountRow row{fmt::format("layer {}", i), types_of(model, i),
                 count_layer(model, static_cast<int64_t>(i))};
    if (!rows.empty() && rows.back().ops == row.ops && rows.back().type == row.type) {
      rows.back().part = fmt::format("layers {}-{}, each", first, i);
    } else {
      first = i;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace

std::string count_model(const Model& model, const std::string& output) {
  const std::string embedding(model.all_parts().front().embedding.stored.format->name);
  std::vector<CountRow> rows = {{"embedding", embedding, count_embedding(model)}};
  const std::vector<CountRow> layers = layer_rows(model);
  rows.insert(rows.end(), layers.begin(), layers.end());
  rows.push_back(
      {"head", std::string(model.all_parts().back().head.format->name), count_head(model)});
  CountRow sum{"model", std::string(model.type_name()), count_embedding(model)};
  for (size_t i = 0; i < model.config.layers.size(); ++i)
    sum.ops += count_layer(model, static_cast<int64_t>(i));
  sum.ops += count_head(model);
  rows.push_back(std::move(sum));
  return show(rows, output);
}

std::string count_matrices(const std::vector<std::string>& types,
                           const std::vector<std::string>& shapes, const std::string& output) {
  std::vector<CountRow> rows;
  for (const std::string& text : shapes) {
    const MatrixShape shape = parse_shape(text);
    for (const std::string& type : types.empty() ? std::vector<std::string>{"f16", "tq3"} : types) {
      const Format& format = get_format(type);
      rows.push_back(
          {text, type, count_product(format, shape.rows, shape.cols, format.activation_planes)});
    }
  }
  return show(rows, output);
}

}  // namespace walsh::cli
