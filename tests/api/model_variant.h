// Changes some files of the repository's model.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "io/json.h"

namespace walsh::test {

inline const std::string kModel = std::string(WALSH_SOURCE_DIR) + "/models/walsh-tiny-13m";

// Makes a folder of links to the model's files, which is removed at the end.
class ModelVariant {
 public:
  explicit ModelVariant(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("walsh_" + name + "_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    for (const auto& file : std::filesystem::directory_iterator(kModel))
      std::filesystem::create_symlink(file.path(), path_ / file.path().filename());
  }
  ~ModelVariant() { std::filesystem::remove_all(path_); }
  ModelVariant(const ModelVariant&) = delete;
  ModelVariant& operator=(const ModelVariant&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

  ModelVariant& remove(const std::string& name) {
    std::filesystem::remove(file(name));
    return *this;
  }
  ModelVariant& write(const std::string& name, const std::string& text) {
    remove(name);
    std::ofstream(file(name), std::ios::binary) << text;
    return *this;
  }
  // Sets keys of a JSON file; null removes them.
  ModelVariant& set(const std::string& name, const Json& keys) {
    std::ifstream in(file(name), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    Json json = parse_json(text, name);
    json.merge_patch(keys);
    return write(name, json.dump());
  }

 private:
  std::filesystem::path path_;
};

}  // namespace walsh::test
