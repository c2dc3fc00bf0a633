// Makes a small checkpoint in its own folder, whose tensors a test may change.
#pragma once

#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "allocate/candidates.h"
#include "arch/plan.h"
#include "base/random.h"
#include "quantize/pipeline/open.h"

namespace walsh::test {

class TinyModel {
 public:
  TinyModel()
      : folder_(std::filesystem::temp_directory_path() /
                ("walsh_allocate_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(std::string(WALSH_TEST_DATA) + "/models/llama31-tiny", folder_);
  }
  ~TinyModel() { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_.string(); }

  // Multiplies all values of a tensor (BF16).
  void scale(const std::string& name, float factor) const {
    const std::string file = (folder_ / "model.safetensors").string();
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto json = nlohmann::json::parse(bytes.substr(8, header));
    const auto& offsets = json.at(name).at("data_offsets");
    const auto end = offsets[1].get<uint64_t>();
    for (auto at = offsets[0].get<uint64_t>(); at < end; at += 2) {
      char* place = bytes.data() + 8 + header + at;
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + 2, place, 2);
      const auto scaled = std::bit_cast<uint32_t>(factor * std::bit_cast<float>(bits));
      std::memcpy(place, reinterpret_cast<const char*>(&scaled) + 2, 2);
    }
    std::ofstream(file, std::ios::binary) << bytes;
  }

  OpenCompressor opener(ThreadPool& pool) const {
    return [this, &pool](const Recipe& recipe) { return open_compressor(path(), recipe, pool); };
  }

  // Returns random tokens of its vocabulary.
  static std::vector<int32_t> text(int64_t tokens) {
    Random random(3);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i)
      ids.push_back(static_cast<int32_t>(random.below(100)));
    return ids;
  }

 private:
  std::filesystem::path folder_;
};

inline Recipe recipe_of(const char* type) {
  Recipe recipe;
  recipe.type = &get_format(type);
  recipe.encode.effort = Effort::fast;
  return recipe;
}

inline std::vector<const Format*> formats(std::initializer_list<const char*> names) {
  std::vector<const Format*> result;
  for (const char* name : names)
    result.push_back(&get_format(name));
  return result;
}

}  // namespace walsh::test
