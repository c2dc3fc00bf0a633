// Declares metadata values, element types of tensors and tensor records, of which GGUF files
// consist.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace walsh {

// These are the type ids of metadata values, as in the file.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

std::string_view gguf_type_name(GgufType type);
// Returns the bytes of one value, or 0 for string and array.
uint64_t gguf_type_size(GgufType type);

// walsh itself stores tensor elements of these type ids; the reader knows the sizes of all types.
enum class GgmlType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q8_0 = 8, i8 = 24, bf16 = 30 };

struct GgmlTypeInfo {
  uint32_t id;
  const char* name;  // ggml calls the type "F32", "Q4_K", ...
  uint32_t block;    // a block has this many elements of the first (innermost) dimension
  uint32_t block_bytes;
};

// Returns nullptr for an id that is not in the table.
const GgmlTypeInfo* ggml_type_info(uint32_t id);

// Returns the type id that stores a T, by size and signedness.
template <typename T>
constexpr GgufType gguf_type_of() {
  constexpr GgufType kUnsigned[] = {GgufType::u8, GgufType::u16, GgufType::u32, GgufType::u64};
  constexpr GgufType kSigned[] = {GgufType::i8, GgufType::i16, GgufType::i32, GgufType::i64};
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? GgufType::f32 : GgufType::f64;
  } else {
    return (std::is_signed_v<T> ? kSigned : kUnsigned)[std::bit_width(sizeof(T)) - 1];
  }
}

// A metadata value is a scalar, a string, an array of numbers or booleans (kept as the file's
// bytes), or an array of strings.
class GgufValue {
 public:
  template <typename T>
  requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) static GgufValue number(T value) {
    return {gguf_type_of<T>(), raw_bytes(&value, sizeof(T))};
  }
  static GgufValue boolean(bool value);
  static GgufValue text(std::string value) { return {GgufType::string, std::move(value)}; }
  template <typename T>
  static GgufValue numbers(std::span<const T> values) {
    return raw_array(gguf_type_of<T>(), raw_bytes(values.data(), values.size_bytes()));
  }
  template <typename T>
  static GgufValue numbers(const std::vector<T>& values) {
    return numbers(std::span<const T>(values));
  }
  static GgufValue texts(std::vector<std::string> values) {
    return {GgufType::string, std::move(values)};
  }
  // Takes little-endian bytes, which are exactly one value or a whole number of elements.
  static GgufValue raw_scalar(GgufType type, std::vector<std::byte> raw);
  static GgufValue raw_array(GgufType element, std::vector<std::byte> raw);

  bool is_array() const { return array_ || std::holds_alternative<Texts>(data_); }
  // Returns the type of the value, or of an array's elements.
  GgufType type() const { return type_; }
  // Returns the number of elements of an array, or 1 for a scalar.
  uint64_t count() const;
  // Returns the bytes that the value takes in a file (without its type id).
  uint64_t encoded_size() const;

  // Conversions throw bad_input naming `where` when the type does not fit or the number would
  // change. Integers convert to any width that holds them, f32 and f64 and integers to double.
  int64_t as_int(std::string_view where) const;
  uint64_t as_uint(std::string_view where) const;
  double as_double(std::string_view where) const;
  bool as_bool(std::string_view where) const;
  const std::string& as_text(std::string_view where) const;
  const std::vector<std::string>& as_texts(std::string_view where) const;
  std::vector<uint64_t> as_uints(std::string_view where) const;
  std::vector<int64_t> as_ints(std::string_view where) const;
  std::vector<double> as_doubles(std::string_view where) const;

  // Returns the bytes of a number or of an array of numbers, and none for strings.
  std::span<const std::byte> raw() const;
  // Returns a text such as "u32" or "array of 3 string" for messages and listings.
  std::string describe() const;

  bool operator==(const GgufValue&) const = default;

 private:
  using Raw = std::vector<std::byte>;
  using Texts = std::vector<std::string>;
  GgufValue(GgufType type, std::variant<Raw, std::string, Texts> data)
      : type_(type), data_(std::move(data)) {}

  static Raw raw_bytes(const void* data, size_t size);
  int64_t int_at(uint64_t index, std::string_view where) const;
  uint64_t uint_at(uint64_t index, std::string_view where) const;
  double double_at(uint64_t index, std::string_view where) const;
  template <typename T>
  T element(uint64_t index) const;
  void want_array(std::string_view where) const;
  void want_scalar(std::string_view where) const;
  [[noreturn]] void refuse(std::string_view where, std::string_view expected) const;

  GgufType type_;
  bool array_ = false;  // it is an array of numbers; data_ shows whether it is one of strings
  std::variant<Raw, std::string, Texts> data_;
};

struct GgufEntry {
  std::string key;
  GgufValue value;
  uint64_t offset = 0;  // the value's first number lies here in the file; strings have none
};

struct GgufTensor {
  std::string name;
  // The innermost (contiguous) dimension comes first, as in the file.
  std::vector<uint64_t> dims;
  uint32_t type = 0;    // the ggml library knows this type id
  uint64_t offset = 0;  // data begin here, counted from the start of the file
  uint64_t bytes = 0;
};

inline constexpr uint32_t kGgufVersion = 3;
inline constexpr uint64_t kGgufMaxKeyBytes = 65535;  // the specification sets this limit
inline constexpr uint64_t kGgufMaxNameBytes = 256;
inline constexpr uint64_t kGgufMaxRank = 4;
inline constexpr uint64_t kGgufMaxAlignment = 4096;
inline constexpr const char* kGgufAlignmentKey = "general.alignment";

// Returns the bytes of a tensor as a checked product; the innermost dimension must be whole blocks
// of the type. Throws bad_input naming `where`.
uint64_t gguf_tensor_bytes(uint32_t type, std::span<const uint64_t> dims, std::string_view where);

}  // namespace walsh
