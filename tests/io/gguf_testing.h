// Builds GGUF files by hand, byte by byte, independently of the writer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io_testing.h"

namespace walsh::testing {

using namespace ::testing;  // Names of the framework are not hidden by this namespace.

class GgufText {
 public:
  GgufText(uint32_t version, uint64_t tensors, uint64_t pairs) {
    bytes("GGUF").number(version).number(tensors).number(pairs);
  }
  template <typename T>
  GgufText& number(T value) {
    append_number(out_, value);
    return *this;
  }
  GgufText& bytes(std::string_view s) {
    out_ += s;
    return *this;
  }
  GgufText& text(std::string_view s) { return number<uint64_t>(s.size()).bytes(s); }
  GgufText& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                   uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims)
      number(dim);
    return number(type).number(offset);
  }
  // Returns the bytes added so far, without padding.
  Bytes exact() const { return to_bytes(out_); }
  // Returns them padded to `alignment` and followed by `data_bytes` bytes.
  Bytes file(size_t alignment, size_t data_bytes) const {
    Bytes result = exact();
    result.resize((result.size() + alignment - 1) / alignment * alignment + data_bytes);
    return result;
  }

 private:
  std::string out_;
};

// Returns a file with seven metadata values and two tensors whose data end exactly at the end of
// the file.
inline Bytes valid_gguf(uint32_t version) {
  GgufText text(version, 2, 7);
  text.text("general.alignment").number<uint32_t>(4).number<uint32_t>(64);
  text.text("name").number<uint32_t>(8).text("abc");
  text.text("flag").number<uint32_t>(7).number<uint8_t>(1);
  text.text("f").number<uint32_t>(6).number(1.5f);
  text.text("neg").number<uint32_t>(1).number<int8_t>(-2);
  text.text("ints").number<uint32_t>(9).number<uint32_t>(2).number<uint64_t>(3);
  text.number<uint16_t>(5).number<uint16_t>(6).number<uint16_t>(7);
  text.text("words").number<uint32_t>(9).number<uint32_t>(8).number<uint64_t>(3);
  text.text("x").text("").text("yz");
  text.tensor("a", {4, 4}, 0, 0).tensor("b", {64}, 24, 64);
  return text.file(64, 128);
}

}  // namespace walsh::testing
