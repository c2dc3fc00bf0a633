// Makes a small random checkpoint on disk, with a plan made by hand, for the tests of the
// quantizer.
#pragma once

#include <unistd.h>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "arch/plan.h"
#include "base/random.h"

namespace walsh {

class TinyCheckpoint {
 public:
  static constexpr int kHidden = 96, kFfn = 160, kVocab = 40;

  explicit TinyCheckpoint(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() /
                ("walsh_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    add("embed", {kVocab, kHidden}, 1.0f);
    for (const char* norm : {"norm1", "norm2", "final"})
      add(norm, {kHidden}, 0.1f, 1.0f);
    for (const char* w : {"q", "k", "v"})
      add(w, {48, kHidden}, 0.05f);
    add("gate", {kFfn, kHidden}, 0.05f);
    add("up", {kFfn, kHidden}, 0.05f);
    add("down", {kHidden, kFfn}, 0.05f);
    add("head", {kVocab, kHidden}, 0.05f);
    save();
  }
  ~TinyCheckpoint() { std::filesystem::remove_all(folder_); }

  ModelPlan plan() const {
    ModelPlan p;
    p.embedding = "embed";
    p.head = "head";
    p.final_norm = "final";
    p.sites = {{"attn", kHidden, "norm1", {"q", "k", "v"}},
               {"mlp", kHidden, "norm2", {"gate", "up"}},
               {"down", kFfn, "", {"down"}}};
    return p;
  }

  std::string path() const { return folder_; }
  std::string file(const std::string& name) const { return folder_ / name; }
  std::vector<float>& values(const std::string& name) { return values_.at(name); }

  void add(const std::string& name, std::vector<int64_t> shape, float scale, float mean = 0) {
    int64_t n = 1;
    for (int64_t d : shape)
      n *= d;
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v)
      x = mean + scale * static_cast<float>(random_.normal());
    values_[name] = std::move(v);
    shapes_[name] = std::move(shape);
  }

  // Writes config.json and model.safetensors (F32).
  void save() const {
    std::ofstream(folder_ / "config.json") << R"({"model_type": "tiny"})";
    nlohmann::json header;
    std::string data;
    for (const auto& [name, v] : values_) {
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float));
      header[name] = {
          {"dtype", "F32"}, {"shape", shapes_.at(name)}, {"data_offsets", {begin, data.size()}}};
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(folder_ / "model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data;
  }

 private:
  std::filesystem::path folder_;
  Random random_{11};
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace walsh
