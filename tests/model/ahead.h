// Loads the tiny checkpoints that have a layer which predicts further tokens
// (tools/golden_ahead.py).
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "model/model_support.h"
#include "weights/open.h"

namespace walsh::test {

inline constexpr const char* kAheadModels[] = {"qwen35", "qwen3-next", "deepseek-v3", "glm4-moe"};

inline std::string ahead_folder(const std::string& name) {
  return std::string(WALSH_TEST_DATA) + "/ahead/" + name;
}

// Holds a model and its layer, which needs the model.
struct AheadModel {
  AheadModel(WeightSource& source, LoadOptions options)
      : model(Model::load(source, read_config(source), options)),
        desc(model.config.ahead),
        layer(Model::load(source, ahead_config(model.config), with_ends(options))) {}

  // Returns what the layer joins of the model's output, or of its own.
  std::vector<float> joined(std::span<const float> stream) const {
    return desc.joins_normed ? normed(model, stream)
                             : std::vector<float>(stream.begin(), stream.end());
  }
  std::vector<float> joined_again(std::span<const float> stream) const {
    return desc.goes_on_normed ? normed(layer, stream)
                               : std::vector<float>(stream.begin(), stream.end());
  }

  Model model;
  AheadDesc desc;
  Model layer;

 private:
  LoadOptions with_ends(LoadOptions options) const {
    options.ends = &model;
    return options;
  }
  static std::vector<float> normed(const Model& of, std::span<const float> x) {
    double squares = of.config.head_input.norm.eps * static_cast<double>(x.size());
    for (const float value : x)
      squares += static_cast<double>(value) * static_cast<double>(value);
    std::vector<float> result;
    for (size_t i = 0; i < x.size(); ++i) {
      const double one = x[i] / std::sqrt(squares / static_cast<double>(x.size()));
      result.push_back(static_cast<float>(one * static_cast<double>(of.head_vectors[0][i])));
    }
    return result;
  }
};

}  // namespace walsh::test
