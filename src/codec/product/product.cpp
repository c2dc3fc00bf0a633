#include "codec/product/product.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "codec/codec.h"
#include "codec/encode/options.h"
#include "codec/product/panels.h"
#include "codec/product/product_tensor.h"
#include "walsh/error.h"

namespace walsh {

void pack_product_row(const uint8_t* pointers, const uint8_t* negative, int64_t padded,
                      std::byte* row) {
  for (int64_t begin = 0; begin < padded; begin += kProductUnitColumns, row += kProductUnitBytes) {
    std::memcpy(row, pointers + begin / kProductValues, 8);
    for (int v = 0; v < 4; ++v) {
      int signs = 0;
      for (int n = 0; n < 8; ++n)
        signs |= negative[begin + 4 * n + v] << n;
      row[8 + v] = static_cast<std::byte>(signs);
    }
  }
}

void check_codebook(const ProductCode& code, const int8_t* codebook) {
  for (int i = 0; i < kCodebookBytes; ++i) {
    if (std::abs(int{codebook[i]}) + code.residual <= 127) continue;
    throw Error(ErrorCode::bad_input, "codebook",
                "entry " + std::to_string(i / kProductValues) + " has the value " +
                    std::to_string(int{codebook[i]}) + ", at most " +
                    std::to_string(127 - code.residual) + " is possible");
  }
}

namespace {

using detail::bytes_of;

std::vector<PassField> fields(const Format& format, int, int64_t rows, int64_t padded) {
  const ProductCode& code = format.product;
  std::vector<PassField> fields = {
      {"codes", &PassArrays::codes, rows, bytes_of(product_row_bytes(padded), 1)},
      {"scales", &PassArrays::scales, rows, bytes_of(product_groups(code, padded), 2)}};
  if (code.own_codebook) {
    fields.push_back({"codebook", &PassArrays::codebook, 1, kCodebookBytes, PassField::kAllRows});
  }
  return fields;
}

int64_t scale_index(const Tensor& tensor, int64_t row, int64_t col) {
  const ProductCode& code = tensor.format->product;
  return row * product_groups(code, padded_cols(*tensor.format, tensor.cols)) + col / code.group;
}

void decode_row(const Tensor& tensor, int, int64_t row, float* out) {
  const ProductCode& code = tensor.format->product;
  const PassArrays& arrays = tensor.pass[0];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int8_t* codebook = product_codebook(tensor);
  const std::byte* codes = arrays.codes.data() + row * product_row_bytes(padded);
  for (int64_t col = 0; col < padded; ++col) {
    out[col] = detail::half_at(arrays.scales, scale_index(tensor, row, col)) *
               product_level(code, codebook, codes, col);
  }
}

int scales(const Tensor& tensor, int, int64_t row, int64_t col, uint16_t (&halves)[2]) {
  halves[0] = detail::half_bits(tensor.pass[0].scales, scale_index(tensor, row, col));
  return 1;
}

double level_rms(const Format& format, int) {
  const ProductCode& code = format.product;
  double sum = 0;
  for (int i = 0; i < kCodebookBytes; ++i) {
    for (const int sign : {-1, 1})
      sum += std::pow(code.unit * static_cast<float>(code.codebook[i] + sign * code.residual), 2);
  }
  return std::sqrt(sum / (2 * kCodebookBytes));
}

std::span<const std::byte> codebook(const Tensor& tensor) {
  return {reinterpret_cast<const std::byte*>(product_codebook(tensor)), size_t{kCodebookBytes}};
}

void check(const Tensor& tensor) {
  const ProductCode& code = tensor.format->product;
  if (code.own_codebook) check_codebook(code, product_codebook(tensor));
}

double cost(const Format& format, const EncodeOptions& options) {
  return (format.product.own_codebook ? 900 : 570) * (options.effort == Effort::full ? 1 : 0.3);
}

bool knows(const Format&, Kernel kernel) {
  return kernel == Kernel::cpu_products || kernel == Kernel::cpu_lookup ||
         kernel == Kernel::gpu_products;
}

// Counts the products by lookup.
OpCount count(const Format& format, int64_t rows, int64_t padded, int planes) {
  const int64_t vectors = padded / kProductValues;
  const int64_t scales = rows * product_groups(format.product, padded);
  const int64_t products = vectors * kProductEntries;
  OpCount ops;
  ops.multiplications = static_cast<uint64_t>((products * kProductValues + scales) * planes);
  ops.lookups = static_cast<uint64_t>(rows * vectors * planes);
  ops.additions =
      static_cast<uint64_t>((products * (kProductValues - 1) + rows * padded + scales) * planes);
  ops.additions += ops.lookups;
  return ops;
}

}  // namespace

const Codec kProductCodec = {
    .name = "product",
    .slow_to_encode = true,
    .fields = fields,
    .codebook_bytes = kCodebookBytes,
    .codebook = codebook,
    .check = check,
    .decode_row = decode_row,
    .scales = scales,
    .level_rms = level_rms,
    .encode = detail::encode_product,
    .encode_two_sided = detail::encode_product_two_sided,
    .cost = cost,
    .searches = [](const Format&, const EncodeOptions&) { return true; },
    .fits_scales = [](const Format&) { return true; },
    .pack = detail::pack_product,
    .unpack = detail::unpack_product,
    .has_kernel = knows,
    .count = count,
};

}  // namespace walsh
