#include "io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "io/checkpoint_files.h"
#include "io/json.h"
#include "io/legacy_tokens.h"
#include "io/printable.h"
#include "io/safetensors.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
namespace names = checkpoint_files;

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

[[noreturn]] void refuse(const std::string& where, std::string reason) {
  throw Error(ErrorCode::bad_input, where, std::move(reason));
}

// Also returns true for a link that leads nowhere, as in a cache whose download was interrupted:
// opening it gives the reason, while a file that is passed over would count as one that the model
// does not have.
bool exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

std::string join(const std::string& folder, std::string_view name) {
  return (fs::path(folder) / name).string();
}

void check_folder(const std::string& folder) {
  std::error_code error;
  const auto status = fs::status(folder, error);
  if (error) throw_system_error(folder, "open", error.value());
  if (!fs::is_directory(status)) refuse(folder, "is not a folder, expected a model folder");
}

// Explains a folder without safetensors.
[[noreturn]] void refuse_no_weights(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      refuse(folder, "has no model.safetensors, and " +
                         printable(entry.path().filename().string()) +
                         " is a pickled checkpoint, which can run code when it is read and is "
                         "refused: convert it to safetensors");
    }
  }
  refuse(folder, std::string("has neither ") + names::kSingle + " nor " + names::kIndex);
}

// Refuses a shard's name that leads out of the folder or is no plain file name.
void check_shard_name(const std::string& name, const std::string& index_path) {
  constexpr size_t kMostBytes = 255;  // the name of a file may have this many bytes
  if (name.empty() || name.size() > kMostBytes || name == "." || name == ".." ||
      name.find('/') != name.npos || name.find('\\') != name.npos || !is_plain_utf8(name)) {
    refuse(index_path, "shard \"" + printable(name) + "\" is not a plain file name");
  }
}

// Returns the text of tokenizer_config.json with its chat template replaced by `chat`.
std::string with_chat_template(const std::string& config, const std::string& chat,
                               const std::string& folder) {
  OrderedJson json = OrderedJson::object();
  if (!config.empty()) json = parse_ordered_json(config, folder + ": tokenizer_config.json");
  if (!json.is_object() || !is_utf8(chat)) {
    throw Error(ErrorCode::bad_input, folder + ": chat_template.jinja",
                json.is_object() ? "it is not UTF-8" : "tokenizer_config.json is no object");
  }
  json["chat_template"] = chat;
  return json.dump();
}

// Returns the text of config.json with what transformers 5 writes for infinity. Older versions
// wrote a word that JSON does not have.
std::string with_infinity_as_json(const std::string& config) {
  constexpr std::string_view kWord = "Infinity", kObject = R"({"__float__": "Infinity"})";
  std::string result;
  bool quoted = false;
  for (size_t i = 0; i < config.size(); ++i) {
    if (!quoted && config.compare(i, kWord.size(), kWord) == 0) {
      result += kObject;
      i += kWord.size() - 1;
      continue;
    }
    if (config[i] == '"') quoted = !quoted;
    result += config[i];
    if (quoted && config[i] == '\\' && i + 1 < config.size()) result += config[++i];
  }
  return result;
}

}  // namespace

DType TensorInfo::dtype() const {
  if (dtype_text == "F32") return DType::f32;
  if (dtype_text == "F16") return DType::f16;
  if (dtype_text == "BF16") return DType::bf16;
  refuse(where(), "has dtype " + dtype_text + ", expected F32, F16 or BF16");
}

int64_t TensorInfo::elements() const {
  // The product is unsigned, because dimensions before a 0 may multiply to 2^63 and more.
  uint64_t result = 1;
  for (const int64_t dim : shape)
    result *= static_cast<uint64_t>(dim);
  return static_cast<int64_t>(result);
}

std::string TensorInfo::where() const {
  return file + ": tensor " + printable(stored_name.empty() ? name : stored_name);
}

Checkpoint Checkpoint::open(const std::string& folder) {
  check_folder(folder);
  Checkpoint result;
  result.folder_ = folder;
  const std::string config = join(folder, names::kConfig);
  if (!exists(config)) refuse(folder, "has no config.json");
  result.config_ = with_infinity_as_json(result.read(config, kMaxConfigBytes));
  result.generation_config_ = result.read_optional(names::kGenerationConfig, kMaxConfigBytes);
  result.tokenizer_ = result.read_optional(names::kTokenizer, kMaxTokenizerBytes);
  result.tokenizer_config_ = result.read_optional(names::kTokenizerConfig, kMaxTokenizerBytes);
  if (!result.tokenizer_.empty()) {
    const LegacyTokenFiles tokens = {
        result.read_optional(names::kSpecialTokens, kMaxTokenizerBytes),
        result.read_optional(names::kAddedTokens, kMaxTokenizerBytes)};
    result.tokenizer_config_ =
        with_legacy_tokens(result.tokenizer_config_, result.tokenizer_, tokens, folder);
  }
  if (const std::string chat = result.read_optional(names::kChatTemplate, kMaxConfigBytes);
      !chat.empty())
    result.tokenizer_config_ = with_chat_template(result.tokenizer_config_, chat, folder);
  // As in Hugging Face transformers, a single file takes precedence over an index.
  if (exists(join(folder, names::kSingle))) {
    result.open_shard(names::kSingle);
  } else if (const std::string index = join(folder, names::kIndex); exists(index)) {
    result.open_indexed(index);
  } else {
    refuse_no_weights(folder);
  }
  return result;
}

Checkpoint Checkpoint::assemble(CheckpointParts parts) {
  Checkpoint result;
  result.folder_ = std::move(parts.path);
  result.files_ = std::move(parts.files);
  result.shards_ = std::move(parts.shards);
  result.tensors_ = std::move(parts.tensors);
  result.config_ = std::move(parts.config);
  result.generation_config_ = std::move(parts.generation_config);
  result.tokenizer_ = std::move(parts.tokenizer);
  result.tokenizer_config_ = std::move(parts.tokenizer_config);
  for (size_t i = 0; i < result.tensors_.size(); ++i) {
    const TensorInfo& info = result.tensors_[i];
    if (!result.by_name_.try_emplace(info.name, i).second)
      refuse(info.file, "two of its tensors are " + printable(info.name));
  }
  return result;
}

std::string Checkpoint::config_place() const {
  const bool is_gguf = !tensors_.empty() && tensors_.front().gguf;
  return folder_ + (is_gguf ? ": config from its metadata" : "/config.json");
}

std::string Checkpoint::read(const std::string& path, uint64_t max_bytes) {
  files_.push_back(path);
  return read_text_file(path, max_bytes);
}

std::string Checkpoint::read_optional(const std::string& file_name, uint64_t max_bytes) {
  const std::string path = join(folder_, file_name);
  if (!exists(path)) return {};
  std::string text = read(path, max_bytes);
  // An interrupted copy can leave an empty file, which must not pass for an optional file that is
  // absent: JSON is never empty (a template may be).
  if (text.empty() && path.ends_with(".json"))
    refuse(path, "is empty: copy it again, or remove it if the model has none");
  return text;
}

void Checkpoint::open_shard(const std::string& file_name) {
  files_.push_back(join(folder_, file_name));
  MappedFile& shard = shards_.emplace_back(files_.back());
  for (auto& entry : parse_safetensors(shard.bytes(), shard.path())) {
    const auto [place, inserted] = by_name_.try_emplace(entry.name, tensors_.size());
    if (!inserted) {
      refuse(shard.path(),
             "tensor " + printable(entry.name) + " is also in " + tensors_[place->second].file);
    }
    tensors_.push_back({std::move(entry.name),
                        std::move(entry.dtype),
                        std::move(entry.shape),
                        shard.path(),
                        shards_.size() - 1,
                        entry.offset,
                        entry.bytes,
                        {}});
  }
}

void Checkpoint::open_indexed(const std::string& index_path) {
  const Json index = parse_json(read(index_path, kMaxIndexBytes), index_path);
  const Json& map = get_object(index, "weight_map", index_path);
  std::set<std::string> names;
  for (const auto& [tensor, shard] : map.items()) {
    if (!shard.is_string()) {
      refuse(index_path, "the shard of tensor " + printable(tensor) + " is " +
                             describe_json(shard) + ", expected a file name");
    }
    const auto& name = shard.get_ref<const std::string&>();
    check_shard_name(name, index_path);
    names.insert(name);
  }
  shards_.reserve(names.size());
  for (const auto& name : names) {
    if (!exists(join(folder_, name))) {
      refuse(join(folder_, name), "this shard is missing, but the index lists it");
    }
    open_shard(name);
  }
  for (const auto& [tensor, shard] : map.items()) {
    const TensorInfo* info = find(tensor);
    const std::string path = join(folder_, shard.get_ref<const std::string&>());
    if (info == nullptr || info->file != path) {
      refuse(path, "lacks tensor " + printable(tensor) + ", which the index places there");
    }
  }
}

void Checkpoint::correct_config(std::string config, std::string note) {
  config_ = std::move(config);
  notes_.push_back(std::move(note));
}

size_t Checkpoint::rename(std::span<const NameRule> rules) {
  const size_t before = tensors_.size();
  std::vector<TensorInfo> kept;
  by_name_.clear();
  for (TensorInfo& info : tensors_) {
    const auto rule = std::find_if(rules.begin(), rules.end(), [&](const NameRule& candidate) {
      return info.name.starts_with(candidate.prefix);
    });
    if (rule != rules.end()) {
      if (rule->left_out) continue;
      info.stored_name = info.name;
      info.name = std::string(rule->replacement) + info.name.substr(rule->prefix.size());
    }
    const auto [place, inserted] = by_name_.try_emplace(info.name, kept.size());
    if (!inserted) refuse(info.where(), "is the same as " + kept[place->second].where());
    kept.push_back(std::move(info));
  }
  tensors_ = std::move(kept);
  return before - tensors_.size();
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : &tensors_[place->second];
}

std::span<const std::byte> Checkpoint::data(const TensorInfo& info) const {
  return shards_.at(info.shard).bytes().subspan(info.offset, info.bytes);
}

void Checkpoint::drop(const TensorInfo& info) const {
  shards_.at(info.shard).drop(info.offset, info.bytes);
}

}  // namespace walsh
