// Makes a model of a published shape with random weights, for measuring speed. It needs no file and
// takes seconds.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "arch/plan.h"
#include "codec/weight_source.h"

namespace walsh {

struct SyntheticTypes {
  const Format* type = nullptr;  // The layers' matrices have this code.
  const Format* embed_type = nullptr;
  const Format* head_type = nullptr;
  std::vector<const Format*> others = {};  // The layers' matrices take `type` and these in turn.
};

// Returns the names of all shapes, separated by commas.
std::string synthetic_shapes();

// Makes random codes with scales that keep activations of order one. A tensor is made when it is
// loaded. The same shape, types and seed give the same bytes.
class SyntheticSource : public WeightSource {
 public:
  // `shape` is "1b" (22 layers of 2048, like TinyLlama), "8b" or "70b" (like Llama 3.1), "30b-a3b"
  // (like Qwen3-30B-A3B), "gpt-oss-20b", "deepseek-v2-lite", "qwen3.5-9b", "tiny" or "tiny-..."
  // (for tests), for example; synthetic_shapes() lists all. Throws usage for an unknown one.
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
    std::string activation;  // It names the activation whose seed the rotation takes.
    uint64_t seed;
  };

  const Entry& find(const std::string& name) const;

  std::string shape_, config_json_;
  uint32_t seed_;
  std::map<std::string, Entry> tensors_;
  std::vector<std::string> names_;
};

}  // namespace walsh
