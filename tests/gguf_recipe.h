// Writes GGUF files as llama.cpp's converter does: tests/data/gguf states where each element of a
// tensor comes from (tools/make_gguf_models.py), and the small checkpoints contain the elements.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/half.h"
#include "io/checkpoint.h"
#include "io/gguf_writer.h"

namespace walsh::test {

inline nlohmann::json gguf_recipe(const std::string& model) {
  return nlohmann::json::parse(
      std::ifstream(std::string(WALSH_TEST_DATA) + "/gguf/" + model + ".json"));
}

// Returns the models that there are recipes of.
inline std::vector<std::string> gguf_recipes() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(WALSH_TEST_DATA) + "/gguf"))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::vector<float> float_values(const Checkpoint& checkpoint, const TensorInfo& info) {
  std::vector<float> values(static_cast<size_t>(info.elements()));
  const auto data = checkpoint.data(info);
  for (size_t i = 0; i < values.size(); ++i) {
    if (info.dtype() == DType::f32) {
      std::memcpy(&values[i], &data[4 * i], 4);
      continue;
    }
    uint16_t bits = 0;
    std::memcpy(&bits, &data[2 * i], 2);
    values[i] = info.dtype() == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
  return values;
}

inline GgufValue gguf_value(const std::string& type, const nlohmann::json& value) {
  if (type == "STRING") return GgufValue::text(value);
  if (type == "UINT32") return GgufValue::number<uint32_t>(value);
  if (type == "FLOAT32") return GgufValue::number<float>(value);
  if (type == "BOOL") return GgufValue::boolean(value);
  if (type == "INT32[]") return GgufValue::numbers(value.get<std::vector<int32_t>>());
  if (type == "STRING[]") return GgufValue::texts(value);
  if (type == "BOOL[]") {
    std::vector<std::byte> bytes;
    for (const bool flag : value)
      bytes.push_back(std::byte{flag});
    return GgufValue::raw_array(GgufType::boolean, std::move(bytes));
  }
  throw std::runtime_error("metadata of type " + type);
}

// Returns the elements of one tensor, in the order of the file.
inline std::vector<float> gathered(const nlohmann::json& tensor, const std::vector<float>& all) {
  std::vector<float> values;
  if (tensor.contains("values")) return tensor["values"];
  for (const std::vector<int64_t> piece : tensor["map"]) {
    std::vector<int64_t> places = {piece[0]};
    for (size_t i = 1; i < piece.size(); i += 2) {
      const std::vector<int64_t> inner = places;
      for (int64_t n = 1; n < piece[i]; ++n)
        for (const int64_t place : inner)
          places.push_back(place + n * piece[i + 1]);
    }
    for (const int64_t place : places)
      values.push_back(all[static_cast<size_t>(place)]);
  }
  for (float& value : values) {
    if (tensor.contains("function")) value = -std::exp(value);
    value += tensor.value("plus", 0.0f);
  }
  return values;
}

inline std::vector<std::byte> as_type(const std::vector<float>& values, const std::string& type) {
  std::vector<std::byte> bytes;
  const auto put = [&](const auto& value) {
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), begin, begin + sizeof value);
  };
  for (const float value : values) {
    if (type == "F32") put(value);
    if (type == "BF16") put(f32_to_bf16(value));
  }
  return bytes;
}

// Writes the file. `change` may change the recipe before.
inline void write_gguf_recipe(const std::string& model, const std::string& path,
                              const std::function<void(nlohmann::json&)>& change = {}) {
  nlohmann::json recipe = gguf_recipe(model);
  if (change) change(recipe);
  const Checkpoint checkpoint = Checkpoint::open(std::string(WALSH_TEST_DATA) + "/models/" + model);
  std::vector<float> all;
  for (const std::string name : recipe["sources"]) {
    const auto values = float_values(checkpoint, *checkpoint.find(name));
    all.insert(all.end(), values.begin(), values.end());
  }
  GgufWriter writer(32);
  for (const nlohmann::json& entry : recipe["metadata"])
    writer.set(entry[0], gguf_value(entry[1], entry[2]));
  for (const nlohmann::json& tensor : recipe["tensors"])
    writer.add_tensor(tensor["name"], tensor["type"] == "F32" ? GgmlType::f32 : GgmlType::bf16,
                      tensor["dims"]);
  writer.open(path);
  for (const nlohmann::json& tensor : recipe["tensors"])
    writer.write(tensor["name"].get<std::string>(), as_type(gathered(tensor, all), tensor["type"]));
  writer.commit();
}

// Copies the checkpoint with the values in its config that the file reads as.
inline void copy_gguf_source(const std::string& model, const std::string& folder) {
  const std::string source = std::string(WALSH_TEST_DATA) + "/models/" + model;
  std::filesystem::copy(source, folder, std::filesystem::copy_options::recursive);
  nlohmann::json config = nlohmann::json::parse(std::ifstream(source + "/config.json"));
  const nlohmann::json recipe = gguf_recipe(model);
  for (const auto& [key, value] : recipe["config"].items())
    config[key] = value;
  std::ofstream(folder + "/config.json") << config.dump();
}

}  // namespace walsh::test
