// Takes arbitrary bytes as GGUF. They must give a walsh::Error, or readable values and tensors that
// lie inside the file.
#include <cstdlib>

#include "io/gguf.h"
#include "walsh/error.h"

namespace {

// Calls a typed accessor, which may refuse the type but nothing else.
template <typename Access>
void touch(Access&& access) {
  try {
    access();
  } catch (const walsh::Error& e) {
    if (e.code() != walsh::ErrorCode::bad_input) abort();
  }
}

void touch_value(const walsh::GgufValue& value) {
  touch([&] { value.as_int("v"); });
  touch([&] { value.as_uint("v"); });
  touch([&] { value.as_double("v"); });
  touch([&] { value.as_bool("v"); });
  touch([&] { value.as_text("v"); });
  touch([&] { value.as_texts("v"); });
  touch([&] { value.as_uints("v"); });
  touch([&] { value.as_ints("v"); });
  touch([&] { value.as_doubles("v"); });
  if (value.describe().empty() || value.encoded_size() == 0) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  touch([&] {
    const walsh::GgufContent content = walsh::parse_gguf(file, "fuzz");
    for (const auto& entry : content.metadata)
      touch_value(entry.value);
    for (const auto& tensor : content.tensors) {
      if (tensor.bytes > size || tensor.offset > size - tensor.bytes) abort();
      if (content.find_tensor(tensor.name) != &tensor) abort();
    }
  });
  return 0;
}
