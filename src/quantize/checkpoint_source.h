// A Hugging Face checkpoint as it is: dense tensors, used in place from the mapped files.
#pragma once

#include <memory>

#include "formats/weight_source.h"
#include "io/checkpoint.h"

namespace walsh {

class CheckpointSource : public WeightSource {
 public:
  explicit CheckpointSource(Checkpoint checkpoint);

  std::string path() const override { return checkpoint_->folder(); }
  std::string_view config_json() const override { return checkpoint_->config_json(); }
  std::string_view generation_config_json() const override {
    return checkpoint_->generation_config_json();
  }
  std::string_view tokenizer_json() const override { return checkpoint_->tokenizer_json(); }
  std::string_view tokenizer_config_json() const override {
    return checkpoint_->tokenizer_config_json();
  }
  std::vector<std::string> notes() const override { return checkpoint_->notes(); }
  bool contains(const std::string& name) const override;
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  // A matrix, or a vector as one row. Throws bad_input for another rank or element type.
  Tensor load(const std::string& name) override;
  void release(const std::string& name) override;

 private:
  const TensorInfo& find(const std::string& name) const;

  std::shared_ptr<Checkpoint> checkpoint_;
};

}  // namespace walsh
