// Takes any bytes as a safetensors file. They must give a walsh::Error, or entries that lie in
// order inside the file.
#include <cstdlib>

#include "io/safetensors.h"
#include "walsh/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  try {
    uint64_t end = 0;
    for (const auto& entry : walsh::parse_safetensors(file, "fuzz")) {
      if (entry.offset < end || entry.bytes > size || entry.offset > size - entry.bytes) abort();
      end = entry.offset + entry.bytes;
    }
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) abort();
  }
  return 0;
}
