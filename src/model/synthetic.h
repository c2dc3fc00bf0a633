// A model of a published shape with random weights, made in an instant: for measuring speed.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/plan.h"
#include "formats/weight_source.h"

namespace walsh {

struct SyntheticTypes {
  const Format* type = nullptr;  // of the layers' matrices
  const Format* embed_type = nullptr;
  const Format* head_type = nullptr;
  std::vector<const Format*> others = {};  // the layers' matrices take `type` and these in turn
};

// The names of all shapes, in the order of the list, with commas between them.
std::string synthetic_shapes();

// Random codes with scales that keep activations of order one. Tensors are made when they are
// loaded; the same shape, types and seed give the same bytes.
class SyntheticSource : public WeightSource {
 public:
  // shape: "1b" (22 layers of 2048, as TinyLlama), "8b" and "70b" (as Llama 3.1), "30b-a3b" (as
  // Qwen3-30B-A3B), "gpt-oss-20b", "deepseek-v2-lite", "qwen3.5-9b", "tiny" and "tiny-..." (for
  // tests), ... Throws usage for another one.
  SyntheticSource(std::string_view shape, const SyntheticTypes& types, uint32_t seed = 42);

  std::string path() const override { return "synthetic:" + shape_; }
  std::string_view config_json() const override { return config_json_; }
  std::string_view generation_config_json() const override { return {}; }
  std::string_view tokenizer_json() const override { return {}; }
  std::string_view tokenizer_config_json() const override { return {}; }
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  StoredForm form_of(const std::string& name) const override;
  Tensor load(const std::string& name) override;
  void release(const std::string&) override {}

 private:
  struct Entry {
    TensorShape shape;
    const Format* format;
    std::string activation;  // whose seed its rotation has
    uint64_t seed;
  };

  const Entry& find(const std::string& name) const;

  std::string shape_, config_json_;
  uint32_t seed_;
  std::map<std::string, Entry> tensors_;
  std::vector<std::string> names_;
};

}  // namespace walsh
