// Lists the formats without codes.
#pragma once

#include "codec/format.h"

namespace walsh::plain {

constexpr Format dense(std::string_view name, DType dtype, std::string_view note) {
  Format format;
  format.name = name;
  format.dense = true;
  format.dtype = dtype;
  format.note = note;
  return format;
}

inline constexpr Format kFormats[] = {
    dense("f32", DType::f32, "as it is"),
    dense("f16", DType::f16, "half precision"),
    dense("bf16", DType::bf16, "bfloat16"),
};

}  // namespace walsh::plain
