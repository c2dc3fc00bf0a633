#include "codec/product/product_tensor.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/checked.h"
#include "codec/product/product.h"
#include "codec/product/product_search.h"
#include "codec/product/product_training.h"

namespace walsh::detail {
namespace {

constexpr int64_t kRowsPerItem = 32;

// Encodes one rotated row x[padded].
void encode_row(const ProductCode& code, ProductSearch& search, const float* x, int64_t padded,
                std::byte* codes, uint16_t* scales) {
  std::vector<uint8_t> pointers(static_cast<size_t>(padded / kProductValues));
  std::vector<uint8_t> negative(static_cast<size_t>(padded));
  for (int64_t begin = 0; begin < padded; begin += code.group) {
    *scales++ = search.encode(x + begin, std::min<int64_t>(code.group, padded - begin),
                              pointers.data() + begin / kProductValues, negative.data() + begin);
  }
  pack_product_row(pointers.data(), negative.data(), padded, codes);
}

}  // namespace

void encode_product(const EncodeCall& call) {
  const Tensor& tensor = call.tensor;
  const TensorStorage& storage = call.storage;
  const ProductCode& code = tensor.format->product;
  const int64_t rows = tensor.rows, cols = tensor.cols;
  const int64_t padded = padded_cols(*tensor.format, cols);
  const Rotator rotator(tensor.rotation[0], padded);
  if (code.own_codebook) {
    const Codebook256 trained =
        train_codebook(code, rotator, rows, cols, call.read_rows, call.pool);
    std::memcpy(storage.arrays[2].data(), trained.data(), trained.size());
  }
  const int8_t* codebook = product_codebook(tensor);
  call.pool.for_each(ceil_div(rows, kRowsPerItem), [&](int64_t item) {
    const int64_t begin = item * kRowsPerItem, end = std::min(rows, begin + kRowsPerItem);
    std::vector<float> source(static_cast<size_t>((end - begin) * cols));
    std::vector<float> rotated(static_cast<size_t>(padded));
    read_finite_rows(call.read_rows, begin, end, cols, source.data());
    ProductSearch search(code, codebook, call.options);
    for (int64_t row = begin; row < end; ++row) {
      float* x = source.data() + (row - begin) * cols;
      const double norm = squared_length(x, cols);
      rotate_row(rotator, x, cols, row, rotated.data());
      encode_row(code, search, rotated.data(), padded,
                 storage.arrays[0].data() + row * product_row_bytes(padded),
                 storage.halves(1) + row * product_groups(code, padded));
      subtract_decoded(tensor, 0, rotator, row, rotated.data(), x);
      call.errors.set(row, squared_length(x, cols), norm);
    }
  });
}

}  // namespace walsh::detail
