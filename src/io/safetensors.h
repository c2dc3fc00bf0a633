// Reads safetensors files, which consist of an 8-byte header length, a JSON header and one buffer
// of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;           // the file calls it "F32", "BF16", ...
  std::vector<int64_t> shape;  // the outermost dimension comes first; a scalar has none
  uint64_t offset = 0;         // its first byte lies here, counted from the start of the file
  uint64_t bytes = 0;
};

// Returns the bits per element of a safetensors dtype, or nothing for a name that the format does
// not define.
std::optional<int> safetensors_dtype_bits(std::string_view dtype);

// Reads and checks the header of a whole file (`bytes` is all of it). Entries come in the order of
// their data. Throws bad_input naming `where` (and the tensor) unless all of this holds: the header
// has 2 bytes to 100 MB, lies inside the file and is a JSON object; every dtype is known; rank <=
// 8; the shape's byte size does not overflow and equals the given range; the ranges cover the
// buffer exactly, without holes or overlaps; names are distinct plain UTF-8; __metadata__ maps
// strings to strings. The content of __metadata__ is put into `metadata`, unless it is null.
std::vector<SafetensorsEntry> parse_safetensors(
    std::span<const std::byte> bytes, std::string_view where,
    std::map<std::string, std::string>* metadata = nullptr);

}  // namespace walsh
