// Python describes layers and matrices by these tuples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "api/linear_operator.h"
#include "codec/encode/options.h"
#include "walsh/error.h"

namespace walsh::python {

// This has the kind, block, seed and signs of a rotation.
using RotationTuple = std::tuple<std::string, int, uint32_t, bool>;
// This has the address, name of the type, rows, columns and stride of a matrix.
using MatrixTuple = std::tuple<uint64_t, std::string, int64_t, int64_t, int64_t>;
// This has the address and bytes of an array.
using PlaceTuple = std::tuple<uint64_t, uint64_t>;
// This has the type, rows, columns and rotations of a layer.
using FormTuple = std::tuple<std::string, int64_t, int64_t, std::vector<RotationTuple>>;

template <typename T = void>
T* pointer(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

inline DType dtype_of(const std::string& name) {
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name == "bfloat16") return DType::bf16;
  throw Error(ErrorCode::usage, name, "expected float32, float16 or bfloat16");
}

// _operators.py has these codes.
inline DType dtype_of(int code) {
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
  if (code >= 0 && code < 3) return kTypes[code];
  throw Error(ErrorCode::usage, "input", "values are neither float32, float16 nor bfloat16");
}

inline MatrixView view_of(const MatrixTuple& matrix) {
  const auto& [address, type, rows, cols, stride] = matrix;
  return {pointer<const void>(address), dtype_of(type), rows, cols, stride};
}

// The arrays exist, so `type` is a name as files have it.
inline LayerForm form_of(const std::string& type, int64_t rows, int64_t cols,
                         const std::vector<RotationTuple>& rotations) {
  LayerForm form = {&stored_format(type), rows, cols, {}};
  if (rotations.size() != static_cast<size_t>(form.format->passes)) {
    throw Error(ErrorCode::bad_input, "rotation",
                "one for each of the " + std::to_string(form.format->passes) + " passes expected");
  }
  for (size_t pass = 0; pass < rotations.size(); ++pass) {
    const auto& [kind, block, seed, signs] = rotations[pass];
    const bool power = block >= 32 && block <= 1024 && (block & (block - 1)) == 0;
    if (!power) throw Error(ErrorCode::bad_input, "rotation block", std::to_string(block));
    form.rotation[pass] = {parse_rotation_kind(kind), block, seed, signs};
  }
  return form;
}

inline LayerForm form_of(const FormTuple& form) {
  const auto& [type, rows, cols, rotations] = form;
  return form_of(type, rows, cols, rotations);
}

inline EncodeOptions options_of(bool fast, bool shape_gain) {
  return {fast ? Effort::fast : Effort::full,
          shape_gain ? ScaleRule::shape_gain : ScaleRule::search};
}

inline std::vector<std::span<const std::byte>> spans_of(const std::vector<PlaceTuple>& arrays) {
  std::vector<std::span<const std::byte>> spans;
  for (const auto& [address, bytes] : arrays)
    spans.emplace_back(pointer<const std::byte>(address), bytes);
  return spans;
}

// Returns a tensor over arrays in host memory. Throws bad_input for wrong sizes.
Tensor checked_tensor(const LayerForm& form, const std::vector<PlaceTuple>& arrays);

}  // namespace walsh::python
