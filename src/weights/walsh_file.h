// Reads walsh files. They are GGUF v3, and their coded tensors are plain I8 arrays that `walsh.*`
// metadata describe (docs/formats/file.md).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "codec/weight_source.h"
#include "io/checksum.h"
#include "io/gguf.h"
#include "io/mapped_file.h"

namespace walsh {

namespace keys {
inline constexpr const char* kVersion = "walsh.format_version";
// It has the two u64, low and high, of the XXH3-128 of everything before the tensor data, with
// these 16 bytes set to zero. Every file from kCheckedVersion on has it.
inline constexpr const char* kHeader = "walsh.header.checksum";
inline constexpr const char* kFamily = "walsh.family";
inline constexpr const char* kProducer = "walsh.producer";
inline constexpr const char* kRecipe = "walsh.recipe";
// It has u32 kind, block, seed, signs of the rotation folded into the residual stream (format
// version 2).
inline constexpr const char* kFold = "walsh.fold.residual";
inline constexpr const char* kConfig = "walsh.hf.config";
inline constexpr const char* kGenerationConfig = "walsh.hf.generation_config";
inline constexpr const char* kTokenizer = "walsh.hf.tokenizer";
inline constexpr const char* kTokenizerConfig = "walsh.hf.tokenizer_config";
// It is absent where the checkpoint says nothing about embeddings.
inline constexpr const char* kEmbedding = "walsh.embedding";
// These are parallel arrays with one element per tensor. Shape and checksum have two, and a
// rotation has four per pass.
inline constexpr const char* kNames = "walsh.tensor.name";
inline constexpr const char* kFormats = "walsh.tensor.format";
inline constexpr const char* kShapes = "walsh.tensor.shape";  // each tensor has u64 rows and cols
inline constexpr const char* kSources = "walsh.tensor.source_type";
inline constexpr const char* kLinear = "walsh.tensor.linear";  // each tensor has a u8
// Each pass of a tensor has u32 kind, block, seed and signs.
inline constexpr const char* kRotations = "walsh.tensor.rotation";
// Each tensor has the same four u32 once.
inline constexpr const char* kOutputs = "walsh.tensor.output_rotation";
// The first has the matrices whose columns were multiplied by scales that no norm contains, because
// calibration balanced their inputs. The second has those scales, f32 [cols] of each matrix, one
// after the other.
inline constexpr const char* kScaled = "walsh.balance.tensor";
inline constexpr const char* kScales = "walsh.balance.scale";
// Each tensor has an f32, which was measured in the balanced basis.
inline constexpr const char* kErrors = "walsh.tensor.nmse";
// Each tensor has the u64 low and high of its XXH3-128.
inline constexpr const char* kChecksums = "walsh.tensor.checksum";
}  // namespace keys

// Since this version the header has a checksum, and rotations of a folded model are seeded by the
// names of activations instead of their numbers.
inline constexpr uint64_t kCheckedVersion = 3;

// Returns the name of a stored array in the file, which is the tensor's own name or NAME.SUFFIX.
std::string stored_name(const std::string& tensor, const std::string& suffix);

struct StoredTensor {
  std::string name;
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  std::string source_type;
  bool linear = false;
  Rotation rotation[2];
  Rotation output_rotation = kNoRotation;
  double nmse = 0;
  Checksum checksum;
  std::vector<std::span<const std::byte>> arrays;  // they are in the order of array_specs
  uint64_t bytes = 0;
};

class WalshFile : public WeightSource {
 public:
  // Opens a file. Throws bad_input unless the file is a complete walsh file of a known version
  // whose header matches its checksum.
  static std::unique_ptr<WalshFile> open(const std::string& path);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(const std::string& name) const;
  std::string recipe() const { return recipe_; }  // it is JSON
  std::string producer() const { return producer_; }
  // Returns the rotation with which ResidualFold folded the model, if it is folded.
  const std::optional<Rotation>& fold() const { return fold_; }
  // Returns the factors of a matrix's columns, [cols], if no norm contains them, and otherwise
  // none.
  std::span<const float> column_scales(const std::string& name) const;
  uint64_t version() const { return version_; }  // This is the version of the file format.
  uint64_t file_bytes() const { return file_->bytes().size(); }
  // Throws bad_input, naming the tensor, if its content does not match the stored checksum.
  void verify(const StoredTensor& tensor) const;

  std::string path() const override { return file_->path(); }
  std::vector<std::string> notes() const override { return notes_; }
  std::string_view config_json() const override { return config_; }
  // Returns what the checkpoint said about embeddings (weights/open.h); it is empty if it said
  // nothing.
  std::string_view embedding_json() const { return embedding_; }
  std::string_view generation_config_json() const override { return generation_config_; }
  std::string_view tokenizer_json() const override { return tokenizer_; }
  std::string_view tokenizer_config_json() const override { return tokenizer_config_; }
  bool contains(const std::string& name) const override { return find(name) != nullptr; }
  std::vector<std::string> names() const override;
  const Format& format_of(const std::string& name) const override;
  // Loads a tensor and verifies its checksum. Reading every byte once costs little compared with
  // packing it.
  Tensor load(const std::string& name) override;
  void release(const std::string& name) override;
  bool folded() const override { return fold_.has_value(); }
  StoredForm form_of(const std::string& name) const override;

 private:
  WalshFile() = default;
  const StoredTensor& require(const std::string& name) const;
  void verify_header(const GgufContent& content);
  void read_texts(const GgufContent& content);
  void read_fold(const GgufContent& content);
  void read_tensors(const GgufContent& content);
  void note_retired_formats();
  void read_outputs(const GgufContent& content);
  void check_rotations() const;
  void read_scales(const GgufContent& content);
  void bind(const GgufContent& content, StoredTensor& tensor) const;

  std::shared_ptr<MappedFile> file_;
  uint64_t version_ = 0;
  std::string config_, generation_config_, tokenizer_, tokenizer_config_, embedding_, recipe_,
      producer_;
  std::vector<std::string> notes_;
  std::optional<Rotation> fold_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::vector<float>> scales_;
};

}  // namespace walsh
