#include "io/gguf_types.h"

#include <algorithm>
#include <array>

#include "base/checked.h"

namespace walsh {
namespace {

// The table has the block sizes of the ggml library's types. The ids 4, 5, 31 to 33 and 36 to 38
// are retired.
constexpr std::array<GgmlTypeInfo, 34> kGgmlTypes{{
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
}};

constexpr std::array<std::string_view, 13> kValueNames{
    "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"};
constexpr std::array<uint64_t, 13> kValueSizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

bool is_signed(GgufType t) {
  return t == GgufType::i8 || t == GgufType::i16 || t == GgufType::i32 || t == GgufType::i64;
}

bool is_float(GgufType t) {
  return t == GgufType::f32 || t == GgufType::f64;
}

bool is_number(GgufType t) {
  return t != GgufType::boolean && t != GgufType::string && t != GgufType::array;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  return kValueNames.at(static_cast<size_t>(type));
}

uint64_t gguf_type_size(GgufType type) {
  return kValueSizes.at(static_cast<size_t>(type));
}

const GgmlTypeInfo* ggml_type_info(uint32_t id) {
  const auto place = std::lower_bound(kGgmlTypes.begin(), kGgmlTypes.end(), id,
                                      [](const GgmlTypeInfo& t, uint32_t v) { return t.id < v; });
  return place == kGgmlTypes.end() || place->id != id ? nullptr : &*place;
}

uint64_t gguf_tensor_bytes(uint32_t type, std::span<const uint64_t> dims, std::string_view where) {
  const GgmlTypeInfo* info = ggml_type_info(type);
  if (info == nullptr) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "unknown element type id " + std::to_string(type));
  }
  uint64_t elements = 1;
  for (const uint64_t dim : dims)
    elements = checked_mul(elements, dim, where);
  // Strides and element counts are signed in most readers.
  if (elements > static_cast<uint64_t>(INT64_MAX)) {
    throw Error(ErrorCode::bad_input, std::string(where), "size computation overflows");
  }
  const uint64_t row = dims.empty() ? 1 : dims[0];
  if (row % info->block != 0) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "rows of " + std::to_string(row) + " elements, expected a multiple of " +
                    std::to_string(info->block) + " for " + info->name);
  }
  return checked_mul(elements / info->block, info->block_bytes, where);
}

GgufValue GgufValue::boolean(bool value) {
  return {GgufType::boolean, Raw{static_cast<std::byte>(value ? 1 : 0)}};
}

GgufValue GgufValue::raw_scalar(GgufType type, std::vector<std::byte> raw) {
  if (gguf_type_size(type) == 0 || raw.size() != gguf_type_size(type)) {
    throw Error(ErrorCode::internal, "GGUF value", "not one number");
  }
  return {type, std::move(raw)};
}

GgufValue GgufValue::raw_array(GgufType element, std::vector<std::byte> raw) {
  const uint64_t size = gguf_type_size(element);
  if (size == 0 || raw.size() % size != 0) {
    throw Error(ErrorCode::internal, "GGUF value", "not an array of whole numbers");
  }
  GgufValue value(element, std::move(raw));
  value.array_ = true;
  return value;
}

GgufValue::Raw GgufValue::raw_bytes(const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return size == 0 ? Raw() : Raw(bytes, bytes + size);
}

uint64_t GgufValue::count() const {
  if (const auto* texts = std::get_if<Texts>(&data_)) return texts->size();
  return array_ ? std::get<Raw>(data_).size() / gguf_type_size(type_) : 1;
}

uint64_t GgufValue::encoded_size() const {
  constexpr uint64_t kArrayHeader = 4 + 8;  // it holds the element type and the count
  if (const auto* text = std::get_if<std::string>(&data_)) return 8 + text->size();
  if (const auto* texts = std::get_if<Texts>(&data_)) {
    uint64_t size = kArrayHeader;
    for (const auto& text : *texts)
      size += 8 + text.size();
    return size;
  }
  return std::get<Raw>(data_).size() + (array_ ? kArrayHeader : 0);
}

std::span<const std::byte> GgufValue::raw() const {
  const auto* raw = std::get_if<Raw>(&data_);
  return raw == nullptr ? std::span<const std::byte>() : std::span<const std::byte>(*raw);
}

std::string GgufValue::describe() const {
  if (!is_array()) return std::string(gguf_type_name(type_));
  return "array of " + std::to_string(count()) + " " + std::string(gguf_type_name(type_));
}

void GgufValue::refuse(std::string_view where, std::string_view expected) const {
  throw Error(ErrorCode::bad_input, std::string(where),
              "found " + describe() + ", expected " + std::string(expected));
}

void GgufValue::want_array(std::string_view where) const {
  if (!is_array()) refuse(where, "an array");
}

void GgufValue::want_scalar(std::string_view where) const {
  if (is_array()) refuse(where, "a single value");
}

template <typename T>
T GgufValue::element(uint64_t index) const {
  T value;
  std::memcpy(&value, std::get<Raw>(data_).data() + index * sizeof(T), sizeof(T));
  return value;
}

int64_t GgufValue::int_at(uint64_t index, std::string_view where) const {
  switch (type_) {
    case GgufType::i8:
      return element<int8_t>(index);
    case GgufType::i16:
      return element<int16_t>(index);
    case GgufType::i32:
      return element<int32_t>(index);
    case GgufType::i64:
      return element<int64_t>(index);
    default:
      return narrow<int64_t>(uint_at(index, where), where);
  }
}

uint64_t GgufValue::uint_at(uint64_t index, std::string_view where) const {
  switch (type_) {
    case GgufType::u8:
      return element<uint8_t>(index);
    case GgufType::u16:
      return element<uint16_t>(index);
    case GgufType::u32:
      return element<uint32_t>(index);
    case GgufType::u64:
      return element<uint64_t>(index);
    default:
      if (!is_signed(type_)) refuse(where, "an integer");
      return narrow<uint64_t>(int_at(index, where), where);
  }
}

double GgufValue::double_at(uint64_t index, std::string_view where) const {
  if (type_ == GgufType::f32) return static_cast<double>(element<float>(index));
  if (type_ == GgufType::f64) return element<double>(index);
  if (!is_number(type_)) refuse(where, "a number");
  return is_signed(type_) ? static_cast<double>(int_at(index, where))
                          : static_cast<double>(uint_at(index, where));
}

int64_t GgufValue::as_int(std::string_view where) const {
  want_scalar(where);
  return int_at(0, where);
}

uint64_t GgufValue::as_uint(std::string_view where) const {
  want_scalar(where);
  return uint_at(0, where);
}

double GgufValue::as_double(std::string_view where) const {
  want_scalar(where);
  return double_at(0, where);
}

bool GgufValue::as_bool(std::string_view where) const {
  if (is_array() || type_ != GgufType::boolean) refuse(where, "bool");
  return element<uint8_t>(0) != 0;
}

const std::string& GgufValue::as_text(std::string_view where) const {
  const auto* text = std::get_if<std::string>(&data_);
  if (text == nullptr) refuse(where, "string");
  return *text;
}

const std::vector<std::string>& GgufValue::as_texts(std::string_view where) const {
  const auto* texts = std::get_if<Texts>(&data_);
  if (texts == nullptr) refuse(where, "an array of string");
  return *texts;
}

std::vector<uint64_t> GgufValue::as_uints(std::string_view where) const {
  want_array(where);
  if (!is_number(type_) || is_float(type_)) refuse(where, "an array of integers");
  std::vector<uint64_t> result(count());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = uint_at(i, where);
  return result;
}

std::vector<int64_t> GgufValue::as_ints(std::string_view where) const {
  want_array(where);
  if (!is_number(type_) || is_float(type_)) refuse(where, "an array of integers");
  std::vector<int64_t> result(count());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = int_at(i, where);
  return result;
}

std::vector<double> GgufValue::as_doubles(std::string_view where) const {
  want_array(where);
  if (!is_number(type_)) refuse(where, "an array of numbers");
  std::vector<double> result(count());
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = double_at(i, where);
  return result;
}

}  // namespace walsh
