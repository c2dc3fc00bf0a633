// Reads the files of tests/data/vision, which tools/make_vision_goldens.py writes.
#pragma once

#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "codec/format.h"
#include "codec/tensor.h"
#include "io/safetensors.h"

namespace walsh::test {

inline std::string vision_path(const std::string& name) {
  return std::string(WALSH_TEST_DATA) + "/vision/" + name;
}

inline std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::vector<std::byte> read_image(const std::string& name) {
  return read_bytes(vision_path("images/" + name));
}

// Holds what transformers made of the images for a model.
class Expected {
 public:
  explicit Expected(const std::string& model)
      : bytes_(read_bytes(vision_path(model + "/expected.safetensors"))) {
    for (const SafetensorsEntry& entry : parse_safetensors(bytes_, model))
      entries_[entry.name] = entry;
  }
  const std::vector<int64_t>& shape(const std::string& name) const {
    return entries_.at(name).shape;
  }
  std::vector<float> values(const std::string& name) const {
    const SafetensorsEntry& entry = entries_.at(name);
    Tensor tensor;
    tensor.format = &dense_format(entry.dtype == "F16" ? DType::f16 : DType::f32);
    tensor.rows = 1;
    tensor.cols = 1;
    for (const int64_t size : entry.shape)
      tensor.cols *= size;
    tensor.data = std::span<const std::byte>(bytes_).subspan(entry.offset, entry.bytes);
    std::vector<float> result(static_cast<size_t>(tensor.cols));
    decode_rows(tensor, 0, 1, result.data());
    return result;
  }

 private:
  std::vector<std::byte> bytes_;
  std::map<std::string, SafetensorsEntry> entries_;
};

}  // namespace walsh::test
