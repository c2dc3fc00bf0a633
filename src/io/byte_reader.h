// Reads little-endian bytes by a bounded cursor: no read ever passes the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace walsh {

static_assert(std::endian::native == std::endian::little, "file formats are read in place");

// Every function that would pass the end throws bad_input naming the file and the offset, and
// leaves the cursor where it was.
class ByteReader {
 public:
  // `where` names the file in errors. Neither is copied.
  ByteReader(std::span<const std::byte> bytes, std::string_view where)
      : bytes_(bytes), where_(where) {}

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }
  std::string_view where() const { return where_; }

  // Reads one value of a fixed-size type, at any alignment. `what` names the field in errors.
  template <typename T>
  T read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  uint8_t u8(std::string_view what) { return read<uint8_t>(what); }
  uint16_t u16(std::string_view what) { return read<uint16_t>(what); }
  uint32_t u32(std::string_view what) { return read<uint32_t>(what); }
  uint64_t u64(std::string_view what) { return read<uint64_t>(what); }
  float f32(std::string_view what) { return read<float>(what); }
  double f64(std::string_view what) { return read<double>(what); }

  // Returns the next `size` bytes, in place.
  std::span<const std::byte> take(uint64_t size, std::string_view what) {
    if (size > remaining()) fail_overrun(size, what);
    const auto result = bytes_.subspan(offset_, size);
    offset_ += size;
    return result;
  }

  void skip(uint64_t size, std::string_view what) { take(size, what); }

  // Moves to the next multiple of `alignment` (a power of two), counted from the first byte.
  void align(uint64_t alignment, std::string_view what) {
    skip((alignment - (offset_ & (alignment - 1))) & (alignment - 1), what);
  }

  // Returns the string of a u64 length followed by that many bytes, in place. Also throws if the
  // length exceeds `max_bytes`.
  std::string_view string(uint64_t max_bytes, std::string_view what);

  // Throws bad_input with the current offset: "at byte N: reason".
  [[noreturn]] void fail(const std::string& reason) const;

 private:
  [[noreturn]] void fail_overrun(uint64_t size, std::string_view what) const;

  std::span<const std::byte> bytes_;
  std::string_view where_;
  uint64_t offset_ = 0;
};

}  // namespace walsh
