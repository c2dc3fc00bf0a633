#include "io/safetensors_writer.h"

#include <bit>
#include <cstring>

#include "base/checked.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "walsh/error.h"

namespace walsh {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

// Tensor data begin at a multiple of 64 bytes, so that they are aligned in a map.
constexpr uint64_t kDataAlignment = 64;

[[noreturn]] void misuse(std::string_view name, const std::string& reason) {
  throw Error(ErrorCode::internal, std::string(name), reason);
}

}  // namespace

void SafetensorsWriter::add(std::string name, std::string_view dtype, std::vector<int64_t> shape) {
  if (file_) misuse(name, "added after open");
  const auto bits = safetensors_dtype_bits(dtype);
  if (!bits || *bits % 8 != 0) misuse(name, "no element type of whole bytes");
  Slot slot = {std::string(dtype), std::move(shape), data_size_, static_cast<uint64_t>(*bits / 8),
               0};
  for (const int64_t dim : slot.shape)
    slot.bytes = checked_mul(slot.bytes, static_cast<uint64_t>(dim), name);
  data_size_ = checked_add(data_size_, slot.bytes, name);
  if (!slots_.try_emplace(name, std::move(slot)).second) misuse(name, "added twice");
  order_.push_back(std::move(name));
}

std::string SafetensorsWriter::header() const {
  OrderedJson json;
  // transformers refuses files that do not say which framework's arrays they hold.
  json["__metadata__"] = {{"format", "pt"}};
  for (const std::string& name : order_) {
    const Slot& slot = slots_.find(name)->second;
    json[name] = {{"dtype", slot.dtype},
                  {"shape", slot.shape},
                  {"data_offsets", {slot.offset, slot.offset + slot.bytes}}};
  }
  std::string text = json.dump();
  const uint64_t used = sizeof(uint64_t) + text.size();
  text.append(checked_align(used, kDataAlignment, "safetensors header") - used, ' ');
  return text;
}

uint64_t SafetensorsWriter::file_size() const {
  return checked_add(sizeof(uint64_t) + header().size(), data_size_, "safetensors file");
}

void SafetensorsWriter::open(const std::string& path) {
  if (file_) misuse(path, "opened twice");
  const std::string text = header();
  const uint64_t length = text.size();
  data_offset_ = sizeof length + length;
  auto file = std::make_unique<AtomicFile>(path, data_offset_ + data_size_);
  file->write_at(0, std::as_bytes(std::span(&length, 1)));
  file->write_at(sizeof length, std::as_bytes(std::span(text)));
  file_ = std::move(file);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data,
                              uint64_t offset) {
  const auto place = slots_.find(name);
  if (!file_ || place == slots_.end()) misuse(name, "no such tensor, or not open");
  Slot& slot = place->second;
  if (offset > slot.bytes || data.size() > slot.bytes - offset) misuse(name, "does not fit");
  file_->write_at(data_offset_ + slot.offset + offset, data);
  slot.written += data.size();
}

void SafetensorsWriter::commit() {
  if (!file_) misuse("commit", "not open");
  for (const auto& [name, slot] : slots_) {
    if (slot.written != slot.bytes) misuse(name, "is not written completely at commit");
  }
  file_->commit();
}

}  // namespace walsh
