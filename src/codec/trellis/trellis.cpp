#include "codec/trellis/trellis.h"

#include <cmath>
#include <cstring>

#include "codec/codec.h"
#include "codec/trellis/panels.h"
#include "codec/trellis/trellis_profiles.h"
#include "codec/trellis/trellis_tensor.h"

namespace walsh {

uint32_t trellis_state(const TrellisCode& code, const std::byte* tile, int step) {
  const int bytes = static_cast<int>(tile_bytes(code));
  const int first = code.step_bits * (tile_steps(code) - 1 - step);
  // Holds at most 16 bits of state and the 7 bits before them.
  uint32_t window = 0;
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
       bytes_of(padded / kTileCols, static_cast<uint64_t>(tile_bytes(code))), kTileRows},
      {"scales", &PassArrays::scales, rows, bytes_of(code.block_scales ? blocks : 1, 2)}};
  if (!code.block_scales) {
    fields.push_back(
        {"col_scales", &PassArrays::col_scales, 1, bytes_of(blocks, 2), PassField::kAllRows});
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

// Returns whether a code's weights are computed as bytes of a product. Others would need a table
// look-up for every level.
bool on_gpu(const Format& format) {
  const TrellisCode& code = format.trellis;
  return code.rule == TrellisRule::bytes && code.state_bits == kMostStateBits &&
         code.step_bits >= 4 && code.step_bits <= 8;
}

bool knows(const Format& format, Kernel kernel) {
  switch (kernel) {
    case Kernel::cpu_products:
      return format.trellis.rule != TrellisRule::table;
    case Kernel::gpu_products:
      return on_gpu(format);
    case Kernel::gpu_encoder:
      return format.trellis.rule != TrellisRule::table;
    default:
      return false;
  }
}

double cost(const Format& format, const EncodeOptions& options) {
  const TrellisCode& code = format.trellis;
  const double state = code.rule == TrellisRule::table ? 0.14 : 0.057;
  const double search = 40 + state * std::ldexp(1.0, code.state_bits) / code.values;
  return options.effort == Effort::full ? search : 0.7 * search;
}

const Format* finer_scales(const Format& format) {
  const TrellisCode& code = format.trellis;
  return code.block_scales ? nullptr : &trellis_profile(format, code.state_bits, true);
}

OpCount count(const Format& format, int64_t rows, int64_t padded, int planes) {
  const TrellisCode& code = format.trellis;
  const int64_t stored_rows = tile_rows(rows) * kTileRows;
  const int64_t weights = stored_rows * padded;
  const int64_t scales = stored_rows * column_blocks(padded);
  OpCount ops;
  ops.lookups = code.rule == TrellisRule::quantiles ? static_cast<uint64_t>(weights) : 0;
  ops.multiplications = ops.additions = static_cast<uint64_t>((weights + scales) * planes);
  ops.multiplications += static_cast<uint64_t>(weights / code.values);
  if (code.rule == TrellisRule::bytes) ops.additions += static_cast<uint64_t>(weights);
  if (!code.block_scales) ops.multiplications += static_cast<uint64_t>(stored_rows);
  return ops;
}

}  // namespace

const Codec kTrellisCodec = {
    .name = "trellis",
    .slow_to_encode = true,
    .fields = fields,
    .decode_row = decode_row,
    .scales = scales,
    .level_rms = level_rms,
    .encode = detail::encode_trellis,
    .encode_with_feedback = detail::encode_trellis_with_feedback,
    .encode_two_sided = detail::encode_trellis_two_sided,
    .searches_tiles = true,
    .cost = cost,
    .searches = [](const Format&, const EncodeOptions&) { return true; },
    .fits_scales = [](const Format&) { return false; },
    .fast_profile = fast_trellis_profile,
    .full_profile = full_trellis_profile,
    .finer_scales = finer_scales,
    .scale_misfit = detail::rank_one_misfit,
    .find_profile = find_trellis_profile,
    .about = about_trellis_profile,
    .pack = detail::pack_trellis,
    .unpack = detail::unpack_trellis,
    .has_kernel = knows,
    .count = count,
};

}  // namespace walsh
