// Presents a model as Hugging Face's libraries see it, as JSON files and tensors. These are mapped
// from the safetensors shards of a folder, or from GGUF files that are presented in the same way
// (import/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "io/keyed_hash.h"
#include "io/mapped_file.h"

namespace walsh {

// Renames tensors whose names begin with `prefix` to `replacement` + the rest, or hides them.
struct NameRule {
  std::string_view prefix, replacement = {};
  bool left_out = false;
};

// Tells how a GGUF file has changed a tensor, besides its element type.
struct GgufForm {
  uint32_t type = 0;  // ggml has this id for the element type
  // If this is not 0, rows of this many heads are interleaved: of the n rows of a head, rows i and
  // i + n/2 are neighbours. 0 means that rows are in their usual order.
  int64_t paired_heads = 0;
  float offset = 0;  // the file's values are larger by this
};

struct TensorInfo {
  std::string name;
  std::string dtype_text;      // safetensors calls it "BF16", "I64", ..., ggml "Q4_K"
  std::vector<int64_t> shape;  // the outermost dimension comes first
  std::string file;            // this is the shard's path
  size_t shard = 0;            // the shard has this index in the checkpoint
  uint64_t offset = 0;         // it counts bytes from the start of the shard
  uint64_t bytes = 0;
  std::string stored_name = {};       // this is its name in the file, if it is not `name`
  std::optional<GgufForm> gguf = {};  // only a tensor of a GGUF file has it

  // Returns the element type. Throws bad_input, naming file and tensor, if it is not F32, F16 or
  // BF16.
  DType dtype() const;
  int64_t elements() const;
  // Returns "FILE: tensor NAME", for errors.
  std::string where() const;
};

// Checkpoint::assemble takes these.
struct CheckpointParts {
  std::string path;                // messages name the model by this
  std::vector<std::string> files;  // these are the paths of all files that were read
  std::vector<MappedFile> shards;
  std::vector<TensorInfo> tensors;  // their names are distinct, their ranges lie in their shards
  std::string config, generation_config, tokenizer, tokenizer_config;
};

class Checkpoint {
 public:
  // Opens model.safetensors, or the shards that model.safetensors.index.json lists, and reads the
  // JSON files. Throws io if the folder cannot be read, and bad_input if config.json, the weights
  // or a shard are missing or malformed, if the index names a path instead of a file or a tensor
  // that its shard lacks, or if a tensor is in two shards.
  static Checkpoint open(const std::string& folder);
  // Makes a checkpoint from parts that another reader has checked.
  static Checkpoint assemble(CheckpointParts parts);

  // Returns the folder's path, or that of the file from which the checkpoint was opened.
  const std::string& folder() const { return folder_; }
  // Returns where config_json() was read, for messages.
  std::string config_place() const;
  // Returns the paths of all files that were read or mapped.
  const std::vector<std::string>& files() const { return files_; }
  // Returns the tensors in the order of the shards' names, then of the data.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // Returns nullptr if there is no such tensor.
  const TensorInfo* find(std::string_view name) const;

  // Returns the tensor's bytes in the map. They are row-major and little-endian, and have any
  // alignment.
  std::span<const std::byte> data(const TensorInfo& info) const;
  // Tells the system that the tensor's pages are not needed soon (MappedFile::drop).
  void drop(const TensorInfo& info) const;

  // These return the text of the JSON files. The text is empty when the file is absent, which
  // config.json never is. A chat_template.jinja beside them is the chat_template of
  // tokenizer_config.json.
  std::string_view config_json() const { return config_; }
  std::string_view generation_config_json() const { return generation_config_; }
  std::string_view tokenizer_json() const { return tokenizer_; }
  std::string_view tokenizer_config_json() const { return tokenizer_config_; }

  // Replaces config.json where the tensors contradict it; `note` says how it was corrected.
  void correct_config(std::string config, std::string note);
  // Applies to every tensor the first rule that fits. Returns the number of tensors left out.
  // Throws bad_input if two tensors get one name.
  size_t rename(std::span<const NameRule> rules);
  void add_note(std::string note) { notes_.push_back(std::move(note)); }
  // Returns a sentence for each correction of the config and for tensors that are left out.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::string read(const std::string& path, uint64_t max_bytes);
  std::string read_optional(const std::string& file_name, uint64_t max_bytes);
  void open_shard(const std::string& file_name);
  void open_indexed(const std::string& index_path);

  std::string folder_, config_, generation_config_, tokenizer_, tokenizer_config_;
  std::vector<std::string> notes_;
  std::vector<std::string> files_;
  std::vector<MappedFile> shards_;
  std::vector<TensorInfo> tensors_;
  StringMap<size_t> by_name_;
};

}  // namespace walsh
