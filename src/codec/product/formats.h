// Lists the product formats.
#pragma once

#include "codec/format.h"
#include "codec/product/product_codebook.h"

namespace walsh::product {

constexpr Format product(std::string_view name, bool own_codebook, std::string_view note) {
  Format format;
  format.name = name;
  format.kind = CodeKind::product;
  format.passes = 1;
  format.product = {128, &detail::kProductCodebook[0][0], detail::kProductResidual,
                    detail::kProductUnit, own_codebook};
  format.rotation_block = 128;
  format.bound = 0.0266;
  format.note = note;
  return format;
}

inline constexpr Format kFormats[] = {
    product("pq3", false, "a codebook for four weights and a sign for each"),
    product("pq3:layer", true, "the same with a codebook of 1 KiB trained for each tensor"),
};

}  // namespace walsh::product
