// A Hugging Face checkpoint as it is: dense tensors, used in place from the mapped files. Or
// somebody else's GGUF file, in the same form.
#pragma once

#include <memory>

#include <map>

#include "arch/config.h"
#include "codec/weight_source.h"
#include "import/gguf_tensor.h"
#include "io/checkpoint.h"
#include "io/checksum.h"
#include "weights/stored/form.h"

namespace walsh {

// A checkpoint folder or a foreign GGUF file, whose config.json is true to its tensors: where it
// ties the output head to the embedding, but the checkpoint holds both with different values, the
// head is one of its own, as for transformers 5; a note says so. Of a model of several parts the
// text part, with another note. Throws as Checkpoint::open and parse_config.
Checkpoint open_checkpoint(const std::string& path);
// The same of one that is open.
Checkpoint complete_checkpoint(Checkpoint checkpoint);

class CheckpointSource : public WeightSource {
 public:
  // `parts`: tensors of the model that the checkpoint stores in another way: what they are stored
  // in is not seen itself. `stored`: matrices that are small floats with scales beside them are
  // decoded (stored/form.h). `codes` says whether tensors may come in codes; otherwise all are
  // dense.
  CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts,
                   const StoredQuantization& stored = {}, GgufCodes codes = GgufCodes::drop);
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
  // Blocks of a GGUF file become codes that the device multiplies with, unless none are wanted.
  void use_on(const Device& device) override;
  void release(const std::string& name) override;
  // What load() gives, without its values.
  Tensor describe(const std::string& name) const;

  // Where the checkpoint has a tensor: within another one, unless `part` is null, and the shape of
  // what it is stored in.
  struct Place {
    const TensorPart* part = nullptr;
    std::vector<int64_t> shape;
  };
  Place place_of(const std::string& name) const;
  // Returns the checksum of the bytes in which a tensor is stored, possibly together with others.
  // That of quantized values is of the checksums, in hexadecimal digits, of the values and of what
  // is beside them.
  Checksum stored_checksum(const std::string& name) const;
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }

 private:
  // Where a tensor is stored: its values, and how, if they are quantized.
  struct Stored {
    const TensorInfo* values = nullptr;
    const StoredNames* form = nullptr;
    const TensorPart* part = nullptr;  // if the tensor is one
  };
  Stored find(const std::string& name) const;  // empty if there is none
  Stored get(const std::string& name) const;   // throws bad_input if there is none
  // The name of what a tensor of the checkpoint holds; empty if that is seen under another one.
  std::string name_of(const TensorInfo& info) const;
  // What the names of all tensors of quantized values begin with.
  static std::string stem_of(const Stored& stored);
  std::vector<const TensorInfo*> beside(const Stored& stored) const;
  // The matrix of quantized values. Throws bad_input where its tensors do not fit together.
  StoredMatrixPtr open(const Stored& stored) const;
  // Rows that change their places cannot come in codes.
  GgufCodes codes_of(const Stored& stored) const;
  Tensor describe_whole(const Stored& stored) const;
  static int64_t& units_of(Tensor& tensor, const Stored& stored);
  // For parts with a shape.
  Tensor describe_steps(const std::string& name, const Stored& stored) const;
  Tensor load_steps(const Stored& stored, Tensor tensor) const;
  // `count` rows (elements of a vector), described by `tensor`, in the order of the checkpoint.
  Tensor load_rows(const Stored& stored, Tensor tensor, int64_t first, int64_t count) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  StoredMethod method_;
  GgufCodes codes_;
  std::map<std::string, TensorPart> parts_;                // by the name of the part
  std::map<std::string, std::vector<std::string>> split_;  // their names, by that of the source
  mutable std::map<std::string, Checksum> checksums_;      // that were asked for, by stored tensor
  // Formats that hold quantized matrices bit for bit, by stored tensor; null: none.
  mutable std::map<std::string, const Format*> coded_;
};

// config.json of a model whose head is not tied, as that of a folded one. Throws bad_input as
// parse_json.
std::string untied_config(std::string_view config_json, const std::string& where);

}  // namespace walsh
