// A Hugging Face checkpoint as it is: dense tensors, used in place from the mapped files. Or
// somebody else's GGUF file, in the same form.
#pragma once

#include <memory>

#include <map>

#include "arch/config.h"
#include "formats/weight_source.h"
#include "import/gguf_tensor.h"
#include "io/checkpoint.h"

namespace walsh {

// A checkpoint folder or a foreign GGUF file, whose config.json is true to its tensors: where it
// ties the output head to the embedding, but the checkpoint holds both with different values, the
// head is one of its own, as for transformers 5; a note says so. Throws as Checkpoint::open and
// parse_config.
Checkpoint open_checkpoint(const std::string& path);

class CheckpointSource : public WeightSource {
 public:
  // `parts`: tensors of the model that the checkpoint stores as rows of larger ones, which are not
  // seen themselves. `codes` says whether tensors may come in codes; otherwise all are dense.
  CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts,
                   GgufCodes codes = GgufCodes::drop);
  // open_checkpoint, with the parts that its config asks for.
  static CheckpointSource open(const std::string& folder, GgufCodes codes = GgufCodes::drop);

  std::string path() const override { return checkpoint_->folder(); }
  std::string_view config_json() const override { return checkpoint_->config_json(); }
  std::string_view generation_config_json() const override {
    return checkpoint_->generation_config_json();
  }
  std::string_view tokenizer_json() const override { return checkpoint_->tokenizer_json(); }
  std::string_view tokenizer_config_json() const override {
    return checkpoint_->tokenizer_config_json();
  }
  std::vector<std::string> notes() const override;
  bool contains(const std::string& name) const override;
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  // A matrix, or a vector as one row. Throws bad_input for another rank or element type.
  Tensor load(const std::string& name) override;
  void release(const std::string& name) override;
  // What load() gives, without its values.
  Tensor describe(const std::string& name) const;

 private:
  const TensorInfo& find(const std::string& name) const;
  const Format& format_of(const TensorInfo& info) const;

  std::shared_ptr<Checkpoint> checkpoint_;
  GgufCodes codes_;
  std::map<std::string, TensorPart> parts_;                // by the name of the part
  std::map<std::string, std::vector<std::string>> split_;  // their names, by that of the source
};

}  // namespace walsh
