// Loading of the checkpoints that the tests of the model use.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "model/model.h"
#include "model/session.h"
#include "quantize/checkpoint_source.h"

namespace walsh::test {

inline std::string tiny_model(const std::string& name) {
  return std::string(WALSH_TEST_DATA) + "/models/" + name;
}

// The folder of a model by name; empty if it is one of the shared ones and they are not here.
inline std::string model_folder(const std::string& name) {
  const char* shared = std::getenv("WALSH_SHARED");
  const std::string source = WALSH_SOURCE_DIR;
  for (const std::string& parent :
       {std::string(WALSH_TEST_DATA) + "/models/", source + "/models/",
        (shared != nullptr ? std::string(shared) : source + "/../shared") + "/models/"}) {
    if (std::filesystem::exists(parent + name + "/config.json")) return parent + name;
  }
  return "";
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline Model load_folder(const std::string& folder, ThreadPool& pool) {
  CheckpointSource source(Checkpoint::open(folder));
  const ModelConfig config = parse_config(source.config_json(), folder + "/config.json");
  return Model::load(source, config, {&pool, ActivationMode::automatic, {}});
}

// The logits of all `tokens`, one row per token.
inline std::vector<std::vector<float>> all_logits(Session& session,
                                                  const std::vector<int32_t>& tokens) {
  std::vector<std::vector<float>> rows;
  session.forward(tokens, [&](int64_t, std::span<const float> logits) {
    rows.emplace_back(logits.begin(), logits.end());
  });
  return rows;
}

}  // namespace walsh::test
