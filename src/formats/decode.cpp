// The scalar decoders: the specification that every kernel is tested against.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "formats/product.h"
#include "formats/tensor.h"
#include "formats/trellis.h"

namespace walsh {
namespace {

float half_at(std::span<const std::byte> halves, int64_t index) {
  uint16_t h;
  std::memcpy(&h, halves.data() + 2 * index, 2);
  return f16_to_f32(h);
}

void decode_dense(const Tensor& t, int64_t row, float* out) {
  const int64_t first = row * t.cols;
  if (t.format->dtype == DType::f32) {
    std::memcpy(out, t.data.data() + 4 * first, static_cast<size_t>(4 * t.cols));
    return;
  }
  const bool bf16 = t.format->dtype == DType::bf16;
  for (int64_t i = 0; i < t.cols; ++i) {
    uint16_t h;
    std::memcpy(&h, t.data.data() + 2 * (first + i), 2);
    out[i] = bf16 ? bf16_to_f32(h) : f16_to_f32(h);
  }
}

void decode_scalar_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  const ScalarCode& code = tensor.format->code[pass];
  const PassArrays& arrays = tensor.pass[pass];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int64_t groups = groups_per_row(code, padded);
  const int64_t sub_groups = sub_groups_per_row(code, padded);

  std::vector<uint8_t> codes(static_cast<size_t>(padded));
  unpack_codes(code, arrays.codes.data() + row * code_bytes_per_row(code, padded), padded,
               codes.data());
  for (int64_t begin = 0, g = 0; begin < padded; ++g) {
    const int64_t end = code.group == 0 ? padded : std::min(padded, begin + code.group);
    const float d = half_at(arrays.scales, row * groups + g);
    const float z = code.has_offset ? half_at(arrays.offsets, row * groups + g) : 0.0f;
    float scale = d;
    for (int64_t i = begin; i < end; ++i) {
      if (code.sub_group != 0 && i % code.sub_group == 0) {
        scale = d * half_at(arrays.sub_scales, row * sub_groups + i / code.sub_group);
      }
      const uint8_t c = codes[static_cast<size_t>(i)];
      const float level =
          code.bits == 8 ? static_cast<float>(static_cast<int8_t>(c)) : code.levels[c];
      out[i] = scale * level + z;
    }
    begin = end;
  }
}

void decode_trellis_row(const Tensor& tensor, int64_t row, float* out) {
  const TrellisCode& code = tensor.format->trellis;
  const PassArrays& arrays = tensor.pass[0];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int64_t blocks = column_blocks(padded);
  const std::byte* tiles =
      arrays.codes.data() + row / kTileRows * (padded / kTileCols) * tile_bytes(code);
  for (int64_t col = 0; col < padded; ++col) {
    const std::byte* tile = tiles + col / kTileCols * tile_bytes(code);
    const int t =
        tile_position(static_cast<int>(row % kTileRows), static_cast<int>(col % kTileCols));
    const uint32_t state = trellis_state(code, tile, t / code.values);
    const int64_t block = column_block(col, padded);
    const float scale = code.block_scales
                            ? half_at(arrays.scales, row * blocks + block)
                            : half_at(arrays.scales, row) * half_at(arrays.col_scales, block);
    out[col] = scale * trellis_level(code, state, t % code.values);
  }
}

void decode_product_row(const Tensor& tensor, int64_t row, float* out) {
  const ProductCode& code = tensor.format->product;
  const PassArrays& arrays = tensor.pass[0];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int8_t* codebook = product_codebook(tensor);
  const std::byte* codes = arrays.codes.data() + row * product_row_bytes(padded);
  for (int64_t col = 0; col < padded; ++col) {
    const int64_t group = row * product_groups(code, padded) + col / code.group;
    out[col] = half_at(arrays.scales, group) * product_level(code, codebook, codes, col);
  }
}

}  // namespace

void decode_pass_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  if (tensor.format->kind == CodeKind::trellis) {
    decode_trellis_row(tensor, row, out);
  } else if (tensor.format->kind == CodeKind::product) {
    decode_product_row(tensor, row, out);
  } else {
    decode_scalar_row(tensor, pass, row, out);
  }
}

void decode_rows(const Tensor& tensor, int64_t row_begin, int64_t row_end, float* out) {
  const int64_t cols = tensor.cols;
  if (tensor.format->dense) {
    for (int64_t row = row_begin; row < row_end; ++row, out += cols)
      decode_dense(tensor, row, out);
    return;
  }
  const int64_t padded = padded_cols(*tensor.format, cols);
  std::vector<Rotator> rotators;
  for (int pass = 0; pass < tensor.format->passes; ++pass)
    rotators.emplace_back(tensor.rotation[pass], padded);
  std::vector<float> buffer(static_cast<size_t>(padded));
  for (int64_t row = row_begin; row < row_end; ++row, out += cols) {
    for (int pass = 0; pass < tensor.format->passes; ++pass) {
      decode_pass_row(tensor, pass, row, buffer.data());
      rotators[static_cast<size_t>(pass)].invert(buffer.data());
      if (pass == 0) {
        std::copy_n(buffer.data(), cols, out);
      } else {
        for (int64_t i = 0; i < cols; ++i)
          out[i] += buffer[static_cast<size_t>(i)];
      }
    }
  }
}

}  // namespace walsh
