#include "io/gguf_writer.h"

#include <bit>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "io/checksum.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr char kMagic[] = {'G', 'G', 'U', 'F'};
constexpr uint64_t kPreambleBytes = 4 + 4 + 8 + 8;

[[noreturn]] void misuse(std::string_view item, std::string reason) {
  throw Error(ErrorCode::internal, "GGUF writer: " + printable(item), std::move(reason));
}

class Buffer {
 public:
  template <typename T>
  void number(T value) {
    bytes(&value, sizeof value);
  }
  void bytes(const void* data, size_t size) {
    if (size > 0) out_.append(static_cast<const char*>(data), size);
  }
  void text(std::string_view s) {
    number<uint64_t>(s.size());
    bytes(s.data(), s.size());
  }
  void type(GgufType t) { number(static_cast<uint32_t>(t)); }
  void value(const GgufValue& v) {
    if (v.is_array()) {
      type(v.type());
      number<uint64_t>(v.count());
    }
    if (v.type() != GgufType::string) {
      bytes(v.raw().data(), v.raw().size());
    } else if (!v.is_array()) {
      text(v.as_text(""));
    } else {
      for (const auto& s : v.as_texts(""))
        text(s);
    }
  }
  uint64_t size() const { return out_.size(); }
  std::span<const std::byte> view() const { return std::as_bytes(std::span(out_)); }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kGgufMaxAlignment) {
    misuse(kGgufAlignmentKey, "is not a power of two from 8 to 4096");
  }
  set(kGgufAlignmentKey, GgufValue::number(alignment));
}

void GgufWriter::set(std::string key, GgufValue value) {
  if (file_) misuse(key, "set after open");
  if (key.empty() || key.size() > kGgufMaxKeyBytes || !is_plain_utf8(key)) {
    misuse(key, "not a valid key");
  }
  if (!keys_.try_emplace(key, metadata_.size()).second) misuse(key, "set twice");
  metadata_.push_back({std::move(key), std::move(value)});
}

void GgufWriter::add_tensor(std::string name, GgmlType type, std::vector<uint64_t> dims) {
  if (file_) misuse(name, "added after open");
  if (name.empty() || name.size() > kGgufMaxNameBytes || !is_plain_utf8(name) ||
      dims.size() > kGgufMaxRank) {
    misuse(name, "not a valid name or rank");
  }
  for (const uint64_t dim : dims) {
    if (dim == 0) misuse(name, "has a dimension of 0");
  }
  if (!names_.try_emplace(name, slots_.size()).second) misuse(name, "added twice");
  Slot slot;
  slot.tensor.bytes = gguf_tensor_bytes(static_cast<uint32_t>(type), dims, name);
  slot.tensor.type = static_cast<uint32_t>(type);
  slot.tensor.offset = data_size_;
  data_size_ = checked_align(checked_add(data_size_, slot.tensor.bytes, name), alignment_, name);
  slot.tensor.name = std::move(name);
  slot.tensor.dims = std::move(dims);
  slots_.push_back(std::move(slot));
}

uint64_t GgufWriter::header_size() const {
  uint64_t size = kPreambleBytes;
  for (const auto& entry : metadata_) {
    size += 8 + entry.key.size() + 4 + entry.value.encoded_size();
  }
  for (const auto& slot : slots_) {
    size += 8 + slot.tensor.name.size() + 4 + 8 * slot.tensor.dims.size() + 4 + 8;
  }
  return size;
}

uint64_t GgufWriter::file_size() const {
  return checked_add(checked_align(header_size(), alignment_, "GGUF header"), data_size_,
                     "GGUF file");
}

std::vector<GgufTensor> GgufWriter::layout() const {
  const uint64_t start = file_size() - data_size_;
  std::vector<GgufTensor> result;
  result.reserve(slots_.size());
  for (const auto& slot : slots_) {
    result.push_back(slot.tensor);
    result.back().offset += start;
  }
  return result;
}

std::string GgufWriter::header() {
  Buffer out;
  out.bytes(kMagic, sizeof kMagic);
  out.number(kGgufVersion);
  out.number<uint64_t>(slots_.size());
  out.number<uint64_t>(metadata_.size());
  for (GgufEntry& entry : metadata_) {
    out.text(entry.key);
    out.type(entry.value.is_array() ? GgufType::array : entry.value.type());
    out.value(entry.value);
    entry.offset = out.size() - entry.value.raw().size();
  }
  for (const auto& slot : slots_) {
    out.text(slot.tensor.name);
    out.number(static_cast<uint32_t>(slot.tensor.dims.size()));
    for (const uint64_t dim : slot.tensor.dims)
      out.number(dim);
    out.number(slot.tensor.type);
    out.number(slot.tensor.offset);
  }
  return out.take();
}

void GgufWriter::open(const std::string& path) {
  if (file_) misuse(path, "opened twice");
  const uint64_t size = file_size();
  auto file = std::make_unique<AtomicFile>(path, size);
  const std::string bytes = header();
  file->write_at(0, std::as_bytes(std::span(bytes)));
  file->resize(size);  // the padding reads as zeros
  data_offset_ = size - data_size_;
  file_ = std::move(file);
}

void GgufWriter::write(std::string_view name, std::span<const std::byte> data, uint64_t offset) {
  const auto place = names_.find(name);
  if (!file_ || place == names_.end()) misuse(name, "no such tensor, or not open");
  Slot& slot = slots_[place->second];
  if (offset > slot.tensor.bytes || data.size() > slot.tensor.bytes - offset) {
    misuse(name, std::to_string(data.size()) + " bytes at " + std::to_string(offset) +
                     " do not fit into " + std::to_string(slot.tensor.bytes));
  }
  file_->write_at(data_offset_ + slot.tensor.offset + offset, data);
  const std::lock_guard lock(mutex_);
  slot.written += data.size();
}

void GgufWriter::patch(std::string_view key, const GgufValue& value) {
  const auto place = keys_.find(key);
  if (!file_ || place == keys_.end()) misuse(key, "no such key, or not open");
  if (sealed_) misuse(key, "patched after seal");
  GgufEntry& entry = metadata_[place->second];
  const GgufValue& old = entry.value;
  if (value.type() != old.type() || value.is_array() != old.is_array() ||
      value.count() != old.count() || value.encoded_size() != old.encoded_size() ||
      value.type() == GgufType::string) {
    misuse(key, "is " + old.describe() + ", cannot become " + value.describe());
  }
  file_->write_at(entry.offset, value.raw());
  entry.value = value;
}

void GgufWriter::seal(std::string_view key) {
  patch(key, GgufValue::numbers(std::vector<uint64_t>(2)));
  std::string bytes = header();
  bytes.resize(data_offset_);  // the padding is zeros
  const Checksum sum = checksum(std::as_bytes(std::span(bytes)));
  patch(key, GgufValue::numbers(std::vector<uint64_t>{sum.low, sum.high}));
  sealed_ = true;
}

void GgufWriter::commit() {
  if (!file_) misuse("commit", "not open");
  for (const auto& slot : slots_) {
    if (slot.written != slot.tensor.bytes) {
      misuse(slot.tensor.name, "has " + std::to_string(slot.written) + " of " +
                                   std::to_string(slot.tensor.bytes) + " bytes at commit");
    }
  }
  file_->commit();
  file_.reset();
}

}  // namespace walsh
