// Reads the tensors of a Hugging Face checkpoint or of a foreign GGUF file. Dense ones are used in
// place from the mapped files.
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

// Opens a checkpoint folder or a foreign GGUF file and makes its config.json true to its tensors.
// Where it ties the output head to the embedding, but the checkpoint holds both with different
// values, the head becomes one of its own, as for transformers 5, and a note says so. Of a model of
// several parts only the text part is read, which another note says. Throws as Checkpoint::open and
// parse_config.
Checkpoint open_checkpoint(const std::string& path);
// Does the same to a checkpoint that is open.
Checkpoint complete_checkpoint(Checkpoint checkpoint);

class CheckpointSource : public WeightSource {
 public:
  // `parts` are tensors of the model that the checkpoint stores within others; those are not seen
  // themselves. Matrices that are small floats with scales beside them, as `stored` says, are
  // decoded (stored/form.h). `codes` says whether tensors may come in codes; otherwise all are
  // dense.
  CheckpointSource(Checkpoint checkpoint, const std::vector<TensorPart>& parts,
                   const StoredMethod& stored = {}, GgufCodes codes = GgufCodes::drop);
  // Calls open_checkpoint and uses the parts that its config asks for.
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
  // Returns a matrix, or a vector as one row. Throws bad_input for another rank or element type.
  Tensor load(const std::string& name) override;
  // Lets blocks of a GGUF file become codes that the device multiplies with, unless none are
  // wanted.
  void use_on(const Device& device) override;
  void release(const std::string& name) override;
  // Returns what load() returns, without the values.
  Tensor describe(const std::string& name) const;

  // Says where the checkpoint has a tensor, which is a part of another one unless `part` is null.
  // `shape` is that of the tensor in the checkpoint.
  struct Place {
    const TensorPart* part = nullptr;
    std::vector<int64_t> shape;
  };
  Place place_of(const std::string& name) const;
  // Returns the checksum of the bytes in which a tensor is stored, possibly together with others.
  // For quantized values it is the checksum of the checksums, in hexadecimal digits, of the values
  // and of the tensors beside them.
  Checksum stored_checksum(const std::string& name) const;
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }

 private:
  // Says where the values of a tensor are stored and, if they are quantized, in which form.
  struct Stored {
    const TensorInfo* values = nullptr;
    const StoredNames* form = nullptr;
    const TensorPart* part = nullptr;  // it is set if the tensor is a part
  };
  Stored find(const std::string& name) const;  // it returns an empty one if there is none
  Stored get(const std::string& name) const;   // it throws bad_input if there is none
  // Returns the model's name for a tensor of the checkpoint, or an empty one if its content is seen
  // under another name.
  std::string name_of(const TensorInfo& info) const;
  // Returns the text with which the names of all tensors of a matrix of quantized values begin.
  static std::string stem_of(const Stored& stored);
  std::vector<const TensorInfo*> beside(const Stored& stored) const;
  // Returns the matrix of quantized values. Throws bad_input where its tensors do not fit together.
  StoredMatrixPtr open(const Stored& stored) const;
  // Returns `drop` for rows that change their places, which cannot come in codes.
  GgufCodes codes_of(const Stored& stored) const;
  Tensor describe_whole(const Stored& stored) const;
  static int64_t& units_of(Tensor& tensor, const Stored& stored);
  // These two are for parts with a shape.
  Tensor describe_steps(const std::string& name, const Stored& stored) const;
  Tensor load_steps(const Stored& stored, Tensor tensor) const;
  // Loads `count` rows of a matrix (elements of a vector) that `tensor` describes, in the order of
  // the checkpoint.
  Tensor load_rows(const Stored& stored, Tensor tensor, int64_t first, int64_t count) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  StoredMethod method_;
  GgufCodes codes_;
  std::map<std::string, TensorPart> parts_;                // the key is the name of the part
  std::map<std::string, std::vector<std::string>> split_;  // each source has the names of its parts
  // Each stored tensor whose checksum was asked for has one.
  mutable std::map<std::string, Checksum> checksums_;
  // These formats hold quantized matrices bit for bit, by stored tensor. Null means that none does.
  mutable std::map<std::string, const Format*> coded_;
};

// Returns the config.json of a model whose head is not tied, as in a folded one. Throws bad_input
// as parse_json.
std::string untied_config(std::string_view config_json, const std::string& where);

}  // namespace walsh
