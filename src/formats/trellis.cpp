#include "formats/trellis.h"

#include <cmath>
#include <cstring>

#include "formats/codec.h"

namespace walsh {

uint32_t trellis_state(const TrellisCode& code, const std::byte* tile, int step) {
  const int bytes = static_cast<int>(tile_bytes(code));
  const int first = code.step_bits * (tile_steps(code) - 1 - step);
  uint32_t window = 0;  // at most 16 bits of state and the 7 before them
  for (int i = 0; i < 3; ++i)
    window |= std::to_integer<uint32_t>(tile[(first / 8 + i) % bytes]) << (8 * i);
  return window >> (first % 8) & ((1u << code.state_bits) - 1);
}

void pack_tile(const TrellisCode& code, const uint16_t* states, std::byte* tile) {
  std::memset(tile, 0, static_cast<size_t>(tile_bytes(code)));
  for (int step = 0; step < tile_steps(code); ++step) {
    const int first = code.step_bits * (tile_steps(code) - 1 - step);
    for (int i = 0; i < code.step_bits; ++i) {
      const int bit = first + i;
      tile[bit / 8] |= static_cast<std::byte>((states[step] >> i & 1) << (bit % 8));
    }
  }
}

namespace {

using detail::bytes_of;
using detail::half_at;

std::vector<PassField> fields(const Format& format, int, int64_t rows, int64_t padded) {
  const TrellisCode& code = format.trellis;
  const int64_t blocks = column_blocks(padded);
  std::vector<PassField> fields = {
      {"codes", &PassArrays::codes, tile_rows(rows),
       bytes_of(padded / kTileCols, static_cast<uint64_t>(tile_bytes(code)))},
      {"scales", &PassArrays::scales, rows, bytes_of(code.block_scales ? blocks : 1, 2)}};
  if (!code.block_scales) {
    fields.push_back({"col_scales", &PassArrays::col_scales, 1, bytes_of(blocks, 2)});
  }
  return fields;
}

void decode_row(const Tensor& tensor, int, int64_t row, float* out) {
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

int scales(const Tensor& tensor, int, int64_t row, int64_t col, uint16_t (&halves)[2]) {
  const PassArrays& arrays = tensor.pass[0];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int64_t block = column_block(col, padded);
  if (tensor.format->trellis.block_scales) {
    halves[0] = detail::half_bits(arrays.scales, row * column_blocks(padded) + block);
    return 1;
  }
  halves[0] = detail::half_bits(arrays.scales, row);
  halves[1] = detail::half_bits(arrays.col_scales, block);
  return 2;
}

double level_rms(const Format& format, int) {
  const TrellisCode& code = format.trellis;
  const int states = 1 << code.state_bits;
  double sum = 0;
  for (int s = 0; s < states; ++s)
    sum += std::pow(trellis_level(code, static_cast<uint32_t>(s), 0), 2);
  return std::sqrt(sum / states);
}

// True for codes whose weights are computed as bytes of a product; the others would need a table
// look-up for every level.
bool on_gpu(const Format& format) {
  const TrellisCode& code = format.trellis;
  return code.rule == TrellisRule::bytes && code.state_bits == kMostStateBits &&
         code.step_bits >= 4 && code.step_bits <= 8;
}

}  // namespace

const Codec kTrellisCodec = {fields, decode_row, scales, level_rms, on_gpu, true};

}  // namespace walsh
