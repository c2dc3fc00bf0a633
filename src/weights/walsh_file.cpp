#include "weights/walsh_file.h"

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "base/checked.h"
#include "codec/codec.h"
#include "codec/retired.h"
#include "walsh/error.h"
#include "walsh/version.h"

namespace walsh {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& reason) {
  throw Error(ErrorCode::bad_input, where, reason);
}

// Returns a value that has exactly `count` elements.
const GgufValue& array_of(const GgufContent& content, const char* key, uint64_t count,
                          const std::string& file) {
  const GgufValue& value = content.get(key, file);
  if (!value.is_array() || value.count() != count) {
    refuse(file + ": " + key,
           "found " + value.describe() + ", expected an array of " + std::to_string(count));
  }
  return value;
}

Rotation read_rotation(std::span<const uint64_t> v, const std::string& where) {
  Rotation r;
  const bool sane = v[0] <= 2 && v[1] >= 32 && v[1] <= 1024 && std::has_single_bit(v[1]) &&
                    v[2] <= UINT32_MAX && v[3] <= 1;
  if (!sane) refuse(where, "the rotation is not one that walsh knows");
  r.kind = static_cast<RotationKind>(v[0]);
  r.block = static_cast<int>(v[1]);
  r.seed = static_cast<uint32_t>(v[2]);
  r.signs = v[3] != 0;
  return r;
}

const Format& known_format(const std::string& name, const std::string& where) {
  try {
    return stored_format(name);
  } catch (const Error& e) {
    refuse(where, e.reason());
  }
}

}  // namespace

std::string stored_name(const std::string& tensor, const std::string& suffix) {
  return suffix.empty() ? tensor : tensor + "." + suffix;
}

std::unique_ptr<WalshFile> WalshFile::open(const std::string& path) {
  std::unique_ptr<WalshFile> result(new WalshFile);
  result->file_ = std::make_shared<MappedFile>(path);
  const GgufContent content = parse_gguf(result->file_->bytes(), path);
  if (!content.find(keys::kVersion)) {
    refuse(path, "a GGUF file, but not one that walsh wrote (no " + std::string(keys::kVersion) +
                     "); give the Hugging Face folder instead");
  }
  const uint64_t version = content.get(keys::kVersion, path).as_uint(path);
  if (version == 0 || version > kFileFormatVersion) {
    refuse(path, "file format version " + std::to_string(version) + ", this walsh reads up to " +
                     std::to_string(kFileFormatVersion));
  }
  result->version_ = version;
  result->verify_header(content);
  result->read_texts(content);
  result->read_fold(content);
  result->read_tensors(content);
  result->read_outputs(content);
  result->check_rotations();
  result->read_scales(content);
  return result;
}

void WalshFile::verify_header(const GgufContent& content) {
  const GgufEntry* entry = content.find_entry(keys::kHeader);
  if (entry == nullptr && version_ < kCheckedVersion) {
    notes_.push_back(path() + ": written by an older walsh, without a checksum of its metadata: " +
                     "damage to them is not found");
    return;
  }
  const auto stored = array_of(content, keys::kHeader, 2, path()).as_uints(path());
  const auto header =
      file_->bytes().first(std::min<uint64_t>(content.data_offset, file_->bytes().size()));
  const Checksum found = checksum_without(header, entry->offset, entry->value.raw().size());
  if (const Checksum expected = {stored[0], stored[1]}; found != expected) {
    refuse(path() + ": header",
           "checksum " + found.hex() + ", expected " + expected.hex() + ": the file is damaged");
  }
}

void WalshFile::read_texts(const GgufContent& content) {
  const auto text = [&](const char* key) { return content.get(key, path()).as_text(path()); };
  config_ = text(keys::kConfig);
  generation_config_ = text(keys::kGenerationConfig);
  tokenizer_ = text(keys::kTokenizer);
  tokenizer_config_ = text(keys::kTokenizerConfig);
  if (content.find(keys::kEmbedding)) embedding_ = text(keys::kEmbedding);
  recipe_ = text(keys::kRecipe);
  producer_ = text(keys::kProducer);
}

void WalshFile::read_fold(const GgufContent& content) {
  if (!content.find(keys::kFold)) return;
  const std::string where = path() + ": " + keys::kFold;
  fold_ = read_rotation(array_of(content, keys::kFold, 4, path()).as_uints(where), where);
}

void WalshFile::read_tensors(const GgufContent& content) {
  const std::string& file = file_->path();
  const auto& names = content.get(keys::kNames, file).as_texts(file + ": " + keys::kNames);
  const uint64_t n = names.size();
  const auto& formats = array_of(content, keys::kFormats, n, file).as_texts(file);
  const auto& sources = array_of(content, keys::kSources, n, file).as_texts(file);
  const auto shapes = array_of(content, keys::kShapes, 2 * n, file).as_uints(file);
  const auto linear = array_of(content, keys::kLinear, n, file).as_uints(file);
  const auto rotations = array_of(content, keys::kRotations, 8 * n, file).as_uints(file);
  const auto errors = array_of(content, keys::kErrors, n, file).as_doubles(file);
  const auto checksums = array_of(content, keys::kChecksums, 2 * n, file).as_uints(file);
  for (size_t i = 0; i < n; ++i) {
    StoredTensor t;
    t.name = names[i];
    const std::string where = file + ": tensor " + t.name;
    t.format = &known_format(formats[i], where);
    t.rows = narrow<int64_t>(shapes[2 * i], where);
    t.cols = narrow<int64_t>(shapes[2 * i + 1], where);
    if (t.rows < 1 || t.cols < 1) refuse(where, "empty shape");
    t.source_type = sources[i];
    t.linear = linear[i] != 0;
    for (size_t pass = 0; pass < 2; ++pass) {
      t.rotation[pass] = read_rotation(std::span(rotations).subspan(8 * i + 4 * pass, 4), where);
    }
    t.nmse = errors[i];
    t.checksum = {checksums[2 * i], checksums[2 * i + 1]};
    bind(content, t);
    if (!index_.emplace(t.name, i).second) refuse(where, "listed twice");
    tensors_.push_back(std::move(t));
  }
  note_retired_formats();
}

void WalshFile::note_retired_formats() {
  std::set<std::string_view> names;
  for (const StoredTensor& t : tensors_)
    if (t.format->retired) names.insert(t.format->name);
  if (!names.empty()) notes_.push_back(about_retired(path(), names));
}

void WalshFile::read_outputs(const GgufContent& content) {
  if (!content.find(keys::kOutputs)) return;
  const uint64_t count = 4 * tensors_.size();
  const auto numbers = array_of(content, keys::kOutputs, count, path()).as_uints(path());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& t = tensors_[i];
    const std::string where = path() + ": tensor " + t.name;
    t.output_rotation = read_rotation(std::span(numbers).subspan(4 * i, 4), where);
    if (t.output_rotation.kind == RotationKind::none) continue;
    if (t.format->dense || t.rows % 32 != 0) refuse(where, "its outputs cannot be rotated");
  }
}

void WalshFile::check_rotations() const {
  OrthogonalWork work;
  for (const StoredTensor& t : tensors_) {
    for (int pass = 0; pass < t.format->passes; ++pass)
      work.add(t.rotation[pass], padded_cols(*t.format, t.cols));
    work.add(t.output_rotation, t.rows);
  }
  if (work.total() <= most_orthogonal_work(file_bytes())) return;
  refuse(path() + ": " + keys::kRotations,
         "so many different qr rotations that making them would take far longer than reading a "
         "file of this size");
}

void WalshFile::read_scales(const GgufContent& content) {
  if (!content.find(keys::kScaled)) return;
  const std::string where = path() + ": " + keys::kScaled;
  const auto& names = content.get(keys::kScaled, path()).as_texts(where);
  uint64_t count = 0;
  for (const std::string& name : names)
    count = checked_add(count, static_cast<uint64_t>(require(name).cols), where);
  const auto values = array_of(content, keys::kScales, count, path()).as_doubles(where);
  size_t at = 0;
  for (const std::string& name : names) {
    std::vector<float>& scales = scales_[name];
    if (!scales.empty()) refuse(where, name + " is listed twice");
    for (int64_t c = 0; c < require(name).cols; ++c)
      scales.push_back(static_cast<float>(values[at++]));
  }
}

std::span<const float> WalshFile::column_scales(const std::string& name) const {
  const auto it = scales_.find(name);
  return it == scales_.end() ? std::span<const float>() : std::span<const float>(it->second);
}

StoredForm WalshFile::form_of(const std::string& name) const {
  const StoredTensor& stored = require(name);
  return {&loaded_format(*stored.format),
          {stored.rotation[0], stored.rotation[1]},
          stored.output_rotation};
}

void WalshFile::bind(const GgufContent& content, StoredTensor& tensor) const {
  for (const ArraySpec& spec : array_specs(*tensor.format, tensor.rows, tensor.cols)) {
    const std::string name = stored_name(tensor.name, spec.suffix);
    const std::string where = file_->path() + ": tensor " + name;
    const GgufTensor* found = content.find_tensor(name);
    if (!found) refuse(where, "missing");
    if (found->bytes != spec.bytes) {
      refuse(where, "found " + std::to_string(found->bytes) + " bytes, expected " +
                        std::to_string(spec.bytes));
    }
    tensor.arrays.push_back(file_->bytes().subspan(found->offset, found->bytes));
    tensor.bytes += found->bytes;
  }
}

const StoredTensor* WalshFile::find(const std::string& name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

std::vector<std::string> WalshFile::names() const {
  std::vector<std::string> result;
  for (const StoredTensor& t : tensors_)
    result.push_back(t.name);
  return result;
}

void WalshFile::verify(const StoredTensor& tensor) const {
  ChecksumStream sum;
  for (const auto& array : tensor.arrays)
    sum.update(array);
  if (sum.digest() == tensor.checksum) return;
  refuse(path() + ": tensor " + tensor.name, "checksum " + sum.digest().hex() + ", expected " +
                                                 tensor.checksum.hex() + ": the file is damaged");
}

const StoredTensor& WalshFile::require(const std::string& name) const {
  const StoredTensor* stored = find(name);
  if (!stored) refuse(path() + ": tensor " + name, "the file lacks this tensor");
  return *stored;
}

const Format& WalshFile::format_of(const std::string& name) const {
  return loaded_format(*require(name).format);
}

Tensor WalshFile::load(const std::string& name) {
  const StoredTensor* stored = &require(name);
  verify(*stored);
  Tensor tensor;
  tensor.format = stored->format;
  tensor.rows = stored->rows;
  tensor.cols = stored->cols;
  tensor.rotation[0] = stored->rotation[0];
  tensor.rotation[1] = stored->rotation[1];
  tensor.owner = file_;
  bind_arrays(tensor, stored->arrays);
  try {
    check_arrays(tensor);
  } catch (const Error& e) {
    refuse(path() + ": tensor " + stored_name(name, e.where()), e.reason());
  }
  return loaded_tensor(std::move(tensor));
}

void WalshFile::release(const std::string& name) {
  const StoredTensor* stored = find(name);
  if (!stored) return;
  for (const auto& array : stored->arrays) {
    file_->drop(static_cast<uint64_t>(array.data() - file_->bytes().data()), array.size());
  }
}

}  // namespace walsh
