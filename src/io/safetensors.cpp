#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "io/byte_reader.h"
#include "io/json.h"
#include "io/mapped_file.h"
#include "io/printable.h"

namespace walsh {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxRank = 8;
// A valid header nests three levels, which are an object, a tensor and an array.
constexpr int kMaxHeaderDepth = 4;

constexpr std::array<std::pair<std::string_view, int>, 22> kDtypes{{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

[[noreturn]] void refuse(std::string_view where, std::string reason) {
  throw Error(ErrorCode::bad_input, std::string(where), std::move(reason));
}

// Returns a number of the header, which must be an integer >= 0 that fits int64_t.
int64_t size_value(const Json& value, const char* what, std::string_view where) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) {
    refuse(where, std::string(what) + " is " + describe_json(value) +
                      ", expected an integer from 0 to 2^63-1");
  }
  return value.get<int64_t>();
}

// Checks the metadata and copies it to `result`, unless that is null.
void read_metadata(const Json& metadata, std::string_view where,
                   std::map<std::string, std::string>* result) {
  if (!metadata.is_object()) {
    refuse(where, "__metadata__ is " + describe_json(metadata) + ", expected an object");
  }
  for (const auto& [key, value] : metadata.items()) {
    if (!value.is_string()) {
      refuse(where, "__metadata__ \"" + printable(key) + "\" is " + describe_json(value) +
                        ", expected a string");
    }
    if (result != nullptr) (*result)[key] = value.get<std::string>();
  }
}

uint64_t shape_bytes(const std::vector<int64_t>& shape, int element_bits, std::string_view where) {
  uint64_t elements = 1;
  for (const int64_t dim : shape) {
    elements = checked_mul(elements, static_cast<uint64_t>(dim), where);
  }
  const uint64_t bits = checked_mul(elements, static_cast<uint64_t>(element_bits), where);
  if (bits % 8 != 0) refuse(where, "its elements do not fill whole bytes");
  return bits / 8;
}

// Reads one member of the header; its offsets are relative to the buffer of `buffer_size` bytes.
SafetensorsEntry read_entry(const std::string& name, const Json& value, uint64_t buffer_size,
                            std::string_view file) {
  if (name.empty() || !is_plain_utf8(name)) {
    refuse(file, "tensor name \"" + printable(name) + "\" is empty or holds control characters");
  }
  const std::string where = std::string(file) + ": tensor " + printable(name);
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = get_string(value, "dtype", where);
  const auto bits = safetensors_dtype_bits(entry.dtype);
  if (!bits) refuse(where, "unknown dtype \"" + printable(entry.dtype) + "\"");

  const Json& shape = get_array(value, "shape", where);
  if (shape.size() > kMaxRank) {
    refuse(where, "has " + std::to_string(shape.size()) + " dimensions, expected at most " +
                      std::to_string(kMaxRank));
  }
  for (const Json& dim : shape)
    entry.shape.push_back(size_value(dim, "a dimension", where));

  const Json& range = get_array(value, "data_offsets", where);
  if (range.size() != 2) refuse(where, "data_offsets is not a pair");
  const auto begin = static_cast<uint64_t>(size_value(range[0], "data_offsets[0]", where));
  const auto end = static_cast<uint64_t>(size_value(range[1], "data_offsets[1]", where));
  if (begin > end || end > buffer_size) {
    refuse(where, "data_offsets " + std::to_string(begin) + " to " + std::to_string(end) +
                      " do not lie in order inside the " + std::to_string(buffer_size) +
                      " bytes of data");
  }
  const uint64_t expected = shape_bytes(entry.shape, *bits, where);
  if (end - begin != expected) {
    refuse(where, "shape and dtype give " + std::to_string(expected) +
                      " bytes, but data_offsets span " + std::to_string(end - begin));
  }
  if (value.size() != 3) refuse(where, "has keys besides dtype, shape and data_offsets");
  entry.offset = begin;
  entry.bytes = end - begin;
  return entry;
}

// Checks that the entries tile [0, buffer_size); sorts them and moves the offsets to the file's
// start.
void check_layout(std::vector<SafetensorsEntry>& entries, uint64_t data_start, uint64_t buffer_size,
                  std::string_view file) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  uint64_t end = 0;
  for (auto& entry : entries) {
    if (entry.offset != end) {
      refuse(file, "tensor " + printable(entry.name) + " starts at data byte " +
                       std::to_string(entry.offset) + ", expected " + std::to_string(end) +
                       (entry.offset > end ? " (a hole)" : " (an overlap)"));
    }
    end += entry.bytes;
    entry.offset += data_start;
  }
  if (end != buffer_size) {
    refuse(file, "the tensors cover " + std::to_string(end) + " of " + std::to_string(buffer_size) +
                     " bytes of data");
  }
}

}  // namespace

std::optional<int> safetensors_dtype_bits(std::string_view dtype) {
  for (const auto& [name, bits] : kDtypes) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

std::vector<SafetensorsEntry> parse_safetensors(std::span<const std::byte> bytes,
                                                std::string_view where,
                                                std::map<std::string, std::string>* metadata) {
  ByteReader reader(bytes, where);
  const uint64_t header_size = reader.u64("the header length");
  if (header_size < 2 || header_size > kMaxHeaderBytes || header_size > reader.remaining()) {
    refuse(where, "its first 8 bytes say that the header has " + std::to_string(header_size) +
                      " bytes, and " + std::to_string(reader.remaining()) +
                      " follow: the file is truncated, or is no safetensors file");
  }
  const std::string_view text = as_text(reader.take(header_size, "the header"));
  if (text[0] != '{') refuse(where, "the header does not start with '{'");
  const Json header = parse_json(text, std::string(where) + ": header", {kMaxHeaderDepth, true});

  const uint64_t data_start = reader.offset();
  const uint64_t buffer_size = reader.remaining();
  std::vector<SafetensorsEntry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      read_metadata(value, where, metadata);
    } else {
      entries.push_back(read_entry(name, value, buffer_size, where));
    }
  }
  check_layout(entries, data_start, buffer_size, where);
  return entries;
}

}  // namespace walsh
