#include "formats/product.h"

#include <cmath>
#include <cstdlib>
#include <string>

#include "formats/codec.h"
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
  if (code.own_codebook) fields.push_back({"codebook", &PassArrays::codebook, 1, kCodebookBytes});
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

}  // namespace

const Codec kProductCodec = {
    fields, decode_row, scales, level_rms, [](const Format&) { return true; }, true};

}  // namespace walsh
