// Reads the golden vectors of every format, tests/data/golden_formats.json. They are part of the
// format, so a change of them is a new format version. test_quantize writes them with
// WALSH_WRITE_GOLDEN=1.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/tensor.h"

namespace walsh::testing_support {

inline constexpr int64_t kGoldenRows = 2, kGoldenCols = 288;
inline constexpr const char* kGoldenPath = WALSH_TEST_DATA "/golden_formats.json";

// Returns all formats that are written. The file has retired ones too, which are only read.
inline std::vector<const Format*> golden_formats() {
  std::vector<const Format*> formats;
  for (const Format& format : all_formats())
    formats.push_back(&format);
  return formats;
}

// Returns two rows of nearly normal numbers made from additions and multiplications only, so that
// they are the same with every C library; every 37th is an outlier. The second row has one zero
// group.
inline std::vector<float> golden_input() {
  Random random(20);
  std::vector<float> x(kGoldenRows * kGoldenCols);
  for (size_t i = 0; i < x.size(); ++i) {
    double sum = -6;
    for (int k = 0; k < 12; ++k)
      sum += random.uniform();
    x[i] = static_cast<float>(sum * (i % 37 == 0 ? 4.0 : 0.5));
  }
  for (size_t i = kGoldenCols + 256; i < x.size(); ++i)
    x[i] = 0;
  return x;
}

inline Rotation golden_rotation(const Format& format, int pass) {
  Rotation rotation;
  rotation.kind = format.rotation_block == 0 ? RotationKind::none : RotationKind::hadamard;
  rotation.block = format.rotation_block;
  rotation.seed = pass == 0 ? 42 : 1042;
  return rotation;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (std::byte b : bytes) {
    hex += kDigits[std::to_integer<int>(b) >> 4];
    hex += kDigits[std::to_integer<int>(b) & 15];
  }
  return hex;
}

inline std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

// Returns the stored arrays of a tensor by name, "data" for dense formats.
inline std::map<std::string, std::string> arrays_as_hex(const Tensor& tensor) {
  std::map<std::string, std::string> arrays;
  if (tensor.format->dense) arrays["data"] = to_hex(tensor.data);
  for (int pass = 0; pass < tensor.format->passes; ++pass) {
    const std::string suffix = pass == 0 ? "" : "2";
    const PassArrays& p = tensor.pass[pass];
    for (const PassField& field : pass_fields(*tensor.format, pass, tensor.rows, tensor.cols))
      arrays[field.suffix + suffix] = to_hex(p.*field.array);
  }
  return arrays;
}

inline std::string decoded_as_hex(const Tensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.rows * tensor.cols));
  decode_rows(tensor, 0, tensor.rows, out.data());
  return to_hex(std::as_bytes(std::span(out)));
}

// Returns the tensor of a format whose arrays are those of the file, in `memory`.
inline Tensor golden_tensor(const nlohmann::json& golden, const Format& format,
                            std::vector<std::vector<std::byte>>& memory) {
  Tensor tensor;
  tensor.format = &format;
  tensor.rows = kGoldenRows;
  tensor.cols = kGoldenCols;
  const nlohmann::json& arrays = golden.at(std::string(format.name)).at("arrays");
  for (const ArraySpec& spec : array_specs(format, tensor.rows, tensor.cols))
    memory.push_back(from_hex(arrays.at(spec.suffix.empty() ? "data" : spec.suffix)));
  const std::vector<std::span<const std::byte>> spans(memory.begin(), memory.end());
  bind_arrays(tensor, spans);
  for (int pass = 0; pass < format.passes; ++pass)
    tensor.rotation[pass] = golden_rotation(format, pass);
  return tensor;
}

// Returns, by format name, {"arrays": {name: hex}, "decoded": hex of little-endian f32}.
inline nlohmann::json read_golden() {
  return nlohmann::json::parse(std::ifstream(kGoldenPath));
}

}  // namespace walsh::testing_support
