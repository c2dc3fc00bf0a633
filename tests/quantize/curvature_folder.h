// Writes a folder as `python -m walsh.curvature` does, for tests.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/checksum.h"

namespace walsh::testing_support {

class CurvatureFolder {
 public:
  explicit CurvatureFolder(const std::string& path) : path_(path) {
    std::filesystem::create_directories(path_);
    head_ = {{"version", 1}, {"text", "0123"}, {"matrices", nlohmann::json::object()}};
  }
  ~CurvatureFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_; }
  std::string file() const { return path_ + "/layer-00000.safetensors"; }
  nlohmann::json& head() { return head_; }
  std::vector<float>& values(const std::string& name) { return values_.at(name); }

  // Adds the mean of g g^T, its upper triangle row by row.
  void add(const std::string& name, int64_t rows, std::vector<float> upper, const Checksum& weights,
           int64_t tokens = 1000) {
    head_["matrices"][name] = {{"rows", rows}, {"tokens", tokens}, {"weights", weights.hex()}};
    values_[name] = std::move(upper);
  }

  void remove(const std::string& name) {
    head_["matrices"].erase(name);
    values_.erase(name);
  }

  // `sums` adds the checksums that fit.
  void save(bool sums = true) {
    nlohmann::json header;
    std::string data;
    for (const auto& [name, v] : values_) {
      const auto bytes = std::as_bytes(std::span(v));
      if (sums) head_["matrices"][name]["checksum"] = checksum(bytes).hex();
      const size_t begin = data.size();
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      header[name] = {
          {"dtype", "F32"}, {"shape", {v.size()}}, {"data_offsets", {begin, data.size()}}};
    }
    header["__metadata__"] = {{"walsh_curvature", head_.dump()}};
    const std::string text = header.dump();
    const uint64_t length = text.size();
    std::ofstream out(file(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), 8);
    out << text << data;
  }

 private:
  std::string path_;
  nlohmann::json head_;
  std::map<std::string, std::vector<float>> values_;
};

// Returns a positive definite matrix with much between its rows, as add() takes it.
inline std::vector<float> upper_triangle(int64_t rows, float between = 0.5f) {
  std::vector<float> result;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i; j < rows; ++j)
      result.push_back(i == j ? 1.0f + 0.01f * static_cast<float>(i) : between);
  }
  return result;
}

}  // namespace walsh::testing_support
