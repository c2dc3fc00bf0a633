#include "codec/product/panels.h"

#include "codec/pack_arrays.h"

namespace walsh::detail {

PanelMatrix pack_product(const Tensor& tensor, int) {
  const ProductCode& code = tensor.format->product;
  const PassArrays& arrays = tensor.pass[0];
  PanelMatrix w;
  w.product = &code;
  w.rows = tensor.rows;
  w.cols = ceil_div(tensor.cols, kUnitColumns) * kUnitColumns;
  w.group = code.group;
  const int64_t groups = product_groups(code, w.cols);
  const int64_t words = product_row_bytes(w.cols) / 4;
  require_bytes(arrays.codes, elements(w.rows, words, 4), "codes");
  require_bytes(arrays.scales, elements(w.rows, groups, 2), "scales");
  if (code.own_codebook) require_bytes(arrays.codebook, kCodebookBytes, "codebook");

  w.codes = AlignedArray<uint32_t>(elements(w.panels(), words, kPanelRows));
  pack_words(arrays.codes, words, w, [](uint32_t word) { return word; });
  w.scales = pack_groups(w.rows, groups, [&](int64_t row, int64_t g) {
    return load_u16(arrays.scales, row * groups + g);
  });
  const int8_t* codebook = product_codebook(tensor);
  w.codebook = AlignedArray<int8_t>(2 * kCodebookBytes);
  for (int p = 0; p < kProductEntries; ++p) {
    for (int i = 0; i < kProductValues; ++i) {
      const auto upper = static_cast<int8_t>(codebook[p * kProductValues + i] + code.residual);
      w.codebook.data()[p * kProductValues + i] = upper;
      w.codebook.data()[kCodebookBytes + i * kProductEntries + p] = upper;
    }
  }
  return w;
}

void unpack_product(const PanelMatrix& w, std::span<std::byte> codes) {
  unpack_words(w, codes, [](uint32_t word) { return word; });
}

}  // namespace walsh::detail
