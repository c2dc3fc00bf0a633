#include "import/gguf_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "import/gguf_config.h"
#include "import/gguf_family.h"
#include "import/gguf_metadata.h"
#include "import/gguf_places.h"
#include "import/gguf_tokenizer.h"
#include "io/gguf.h"
#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kOwnKeys = "walsh.";
constexpr const char *kSplitCount = "split.count", *kSplitNumber = "split.no";
constexpr int64_t kMaxFiles = 1000;

// Returns the paths of all files of a model that is split into `count`, of which `path` is the
// first.
std::vector<std::string> split_paths(const std::string& path, int64_t count) {
  const std::string end = fmt::format("-00001-of-{:05}.gguf", count);
  if (!path.ends_with(end)) {
    throw Error(ErrorCode::bad_input, path,
                fmt::format("is the first of {} files, so its name has to end in {}", count, end));
  }
  const std::string stem = path.substr(0, path.size() - end.size());
  std::vector<std::string> paths;
  for (int64_t i = 1; i <= count; ++i)
    paths.push_back(fmt::format("{}-{:05}-of-{:05}.gguf", stem, i, count));
  return paths;
}

class Reader {
 public:
  explicit Reader(const std::string& path) { parts_.path = path; }

  Checkpoint read() {
    open(parts_.path);
    GgufMetadata metadata(contents_.front(), parts_.path);
    family_ = &gguf_family(metadata);
    open_others(metadata);
    // The contents do not move from here on, so references to them stay valid.
    for (size_t i = 0; i < contents_.size(); ++i)
      metadata.add_file(contents_[i], parts_.shards[i].bytes());
    read_heads(metadata);
    parts_.config = gguf_config(metadata, *family_);
    parts_.generation_config = gguf_generation_config(metadata);
    GgufTokenizer tokenizer = gguf_tokenizer(metadata);
    parts_.tokenizer = std::move(tokenizer.json);
    parts_.tokenizer_config = std::move(tokenizer.config);
    for (size_t i = 0; i < contents_.size(); ++i)
      add_tensors(metadata, i);
    Checkpoint checkpoint = Checkpoint::assemble(std::move(parts_));
    if (left_out_ > 0) {
      checkpoint.add_note(metadata.path() + ": " + std::to_string(left_out_) +
                          " tensors that no text needs are left out");
    }
    return checkpoint;
  }

 private:
  void open(const std::string& path) {
    parts_.files.push_back(path);
    contents_.push_back(parse_gguf(parts_.shards.emplace_back(path).bytes(), path));
  }

  void open_others(const GgufMetadata& metadata) {
    const int64_t count = metadata.integer(kSplitCount).value_or(1);
    if (count <= 1) return;
    if (count > kMaxFiles) metadata.refuse(kSplitCount, "exceeds 1000");
    if (metadata.integer(kSplitNumber).value_or(0) != 0)
      metadata.refuse(kSplitNumber, "this is not the first file of the model: name that one");
    const std::vector<std::string> paths = split_paths(parts_.path, count);
    for (size_t i = 1; i < paths.size(); ++i)
      open(paths[i]);
  }

  void read_heads(const GgufMetadata& metadata) {
    if (!family_->paired_heads) return;
    heads_ = metadata.require(".attention.head_count");
    constexpr const char* kKvHeads = ".attention.head_count_kv";
    if (family_->layers_differ) {  // Layers without attention have none; all others have as many.
      const std::vector<int64_t> all = metadata.layer_integers(kKvHeads);
      kv_heads_ = *std::max_element(all.begin(), all.end());
    } else {
      kv_heads_ = metadata.uniform_integer(kKvHeads).value_or(heads_);
    }
    // Rows are divided by both numbers below; whether they suit the model is checked with the
    // config.
    if (heads_ <= 0) metadata.refuse(".attention.head_count", "is not positive");
    if (kv_heads_ <= 0) metadata.refuse(".attention.head_count_kv", "is not positive");
  }

  void add_tensors(const GgufMetadata& metadata, size_t file) {
    const std::string& path = parts_.files[file];
    for (const GgufTensor& tensor : contents_[file].tensors) {
      const std::vector<GgufPlace> places = gguf_places(metadata, *family_, tensor, path);
      if (places.empty() && tensor.name.starts_with("blk.")) ++left_out_;
      for (const GgufPlace& place : places) {
        TensorInfo info;
        info.name = place.name;
        info.stored_name = tensor.name;
        info.dtype_text = ggml_type_info(tensor.type)->name;
        info.shape = place.shape;
        info.file = path;
        info.shard = file;
        info.offset = tensor.offset + place.offset;
        info.bytes = place.bytes;
        info.gguf = form(tensor, info.name);
        parts_.tensors.push_back(std::move(info));
      }
    }
  }

  GgufForm form(const GgufTensor& tensor, std::string_view name) const {
    GgufForm form;
    form.type = tensor.type;
    // The gains of a delta net's norm are stored without the offset.
    if (tensor.dims.size() == 1 && name.ends_with("norm.weight") &&
        !name.ends_with("linear_attn.norm.weight")) {
      form.offset = family_->gain_offset;
    }
    if (name.find(".self_attn.q_proj.") != std::string_view::npos) form.paired_heads = heads_;
    if (name.find(".self_attn.k_proj.") != std::string_view::npos) form.paired_heads = kv_heads_;
    return form;
  }

  CheckpointParts parts_;
  std::deque<GgufContent> contents_;  // each shard has one; the deque keeps references valid
  const GgufFamily* family_ = nullptr;
  int64_t heads_ = 0, kv_heads_ = 0;  // a family with paired heads has them
  size_t left_out_ = 0;               // layers of multi-token prediction have this many tensors
};

}  // namespace

bool is_foreign_gguf(const std::string& path) {
  std::error_code unreadable;  // it is ignored here: whoever opens the file reports why
  if (!std::filesystem::is_regular_file(path, unreadable)) return false;
  try {
    const MappedFile file(path);
    if (!looks_like_gguf(file.bytes())) return false;
    const GgufContent content = parse_gguf(file.bytes(), path);
    return std::none_of(content.metadata.begin(), content.metadata.end(),
                        [](const GgufEntry& e) { return e.key.starts_with(kOwnKeys); });
  } catch (const Error& e) {
    return e.code() == ErrorCode::bad_input;
  }
}

Checkpoint open_gguf_checkpoint(const std::string& path) {
  return Reader(path).read();
}

}  // namespace walsh
