// Names the element types of plain (not quantized) tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace walsh {

enum class DType : uint8_t { f32, f16, bf16 };

constexpr int64_t dtype_size(DType t) {
  return t == DType::f32 ? 4 : 2;
}

constexpr std::string_view dtype_name(DType t) {
  return t == DType::f32 ? "f32" : t == DType::f16 ? "f16" : "bf16";
}

}  // namespace walsh
