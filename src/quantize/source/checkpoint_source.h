// A Hugging Face checkpoint as it is: dense tensors, used in place from the mapped files.
#pragma once

#include <memory>

#include <map>

#include "arch/config.h"
#include "formats/weight_source.h"
#include "io/checkpoint.h"

namespace walsh {

// A checkpoint folder whose config.json is true to its tensors: where it ties the output head to
// the embedding, but the checkpoint holds both with different values, the head is one of its own,
// as for transformers 5; a note says so. Of a model of several parts the text part, with another
// note. Throws as Checkpoint::open and parse_config.
Checkpoint open_checkpoint(const std::string& path);

class CheckpointSource : public WeightSource {
 public:
  // `parts`: tensors of the model that the checkpoint may store in another way: what they are
  // stored in is not seen itself then.
  CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts);
  // open_checkpoint, with the parts that its config asks for.
  static CheckpointSource open(const std::string& folder);

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
  Tensor whole(const TensorInfo& info) const;
  // Throws bad_input if the tensor has not the shape that the part expects.
  Tensor part(const TensorInfo& info, const TensorPart& part) const;
  Tensor coded_part(const TensorInfo& codes, const TensorPart& part) const;

  std::shared_ptr<Checkpoint> checkpoint_;
  std::map<std::string, TensorPart> parts_;                // by the name of the part
  std::map<std::string, std::vector<std::string>> split_;  // their names, by that of the source
  std::map<std::string, std::string> scales_;  // of sources in MXFP4, by the name of the codes
};

}  // namespace walsh
