#include "cache/cuda/coded_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "base/half.h"
#include "codec/scalar/cuda/encode_plan.h"
#include "rotate/rotation.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

uint8_t byte_of(uint16_t half, bool high) {
  return static_cast<uint8_t>(high ? half >> 8 : half & 0xff);
}

void set_byte(uint32_t* words, int index, uint8_t byte) {
  words[index / 4] |= uint32_t{byte} << (8 * (index % 4));
}

// Returns the levels by nibble. A mirrored code of 16 levels has its lower 8 levels reversed.
HalfLevels half_levels(const ScalarCode& code, bool mirrored) {
  HalfLevels levels;
  if (code.bits == 8) return levels;
  for (int nibble = 0; nibble < 1 << code.bits; ++nibble) {
    const int index = mirrored && nibble < 8 ? 7 - nibble : nibble;
    const uint16_t half = f32_to_f16(code.levels[index]);
    set_byte(levels.high, nibble, byte_of(half, true));
    if (nibble < 8) set_byte(levels.low, nibble, byte_of(half, false));
    const uint32_t low = (levels.low[nibble % 8 / 4] >> (8 * (nibble % 4))) & 0xff;
    if (low != byte_of(half, false))
      throw Error(ErrorCode::internal, "GPU cache", "a codebook that is not symmetric");
  }
  return levels;
}

// Returns the same levels as bytes.
ByteLevels byte_levels(const ScalarCode& code, bool mirrored) {
  ByteLevels levels;
  if (code.bits == 8) return levels;
  if (code.levels_i8 == nullptr)
    throw Error(ErrorCode::internal, "GPU cache", "a code without integer levels");
  levels.unit = code.unit;
  for (int nibble = 0; nibble < 1 << code.bits; ++nibble) {
    const int index = mirrored && nibble < 8 ? 7 - nibble : nibble;
    set_byte(levels.words, nibble, static_cast<uint8_t>(code.levels_i8[index]));
  }
  return levels;
}

CodedSide make_side(const CacheType& type, int head_dim) {
  CodedSide side;
  if (!type.coded) {
    side.tile_bytes = kCacheTile * head_dim * 2;
    return side;
  }
  side.code = group_code(type);
  side.bits = type.code.bits;
  side.groups = static_cast<int>(cache_groups(type, head_dim));
  side.tile_bytes = tile_code_bytes(head_dim, side.bits) + kCacheTile * side.groups * 2;
  side.block = std::min(type.rotation_block, head_dim);
  side.levels = half_levels(type.code, side.code.mirrored);
  side.byte_levels = byte_levels(type.code, side.code.mirrored);
  return side;
}

// Returns how many rows a ring has: what a query sees and the row that is added, rounded up to
// tiles.
int ring_rows(const CacheTypes& types) {
  const int64_t rows = round_up(types.window + kCacheBundle + 1, int64_t{kPageTokens});
  if (rows > std::numeric_limits<int>::max() / 2) {
    throw Error(ErrorCode::limit, "KV cache", "a window of " + std::to_string(types.window));
  }
  return static_cast<int>(rows);
}

struct Sizes {
  uint64_t key_tiles, value_tiles, rings, leading, offsets;

  Sizes(const CacheTypes& types, int kv_heads, int head_dim, int64_t pages, int64_t sequences) {
    const auto product = [](std::initializer_list<int64_t> factors) {
      uint64_t bytes = 1;
      for (const int64_t factor : factors)
        bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "KV cache");
      return bytes;
    };
    const int64_t heads = sequences * kv_heads;
    key_tiles = product({pages, kv_heads, kPageTiles, make_side(*types.keys, head_dim).tile_bytes});
    value_tiles =
        product({pages, kv_heads, kPageTiles, make_side(*types.values, head_dim).tile_bytes});
    rings = product({heads, ring_rows(types), head_dim, 2});
    leading = product({heads, kLeadingPositions, head_dim, 2});
    offsets = product({heads, head_dim, 4});
  }
  uint64_t sum() const {
    uint64_t all = 0;
    for (const uint64_t part : {key_tiles, value_tiles, rings, rings, leading, leading, offsets})
      all = checked_add(all, part, "KV cache");
    return all;
  }
};

// Returns the factors of a rotation. Without one they are not read.
std::vector<float> factors_of(int head_dim, int block) {
  const Rotation rotation{RotationKind::hadamard, std::max(block, 32), kCacheRotationSeed, true};
  return encoding::rotation_factors(rotation, head_dim);
}

}  // namespace

CodedLayer::CodedLayer(const CacheTypes& types, int kv_heads, int head_dim, int64_t pages,
                       int64_t sequences) {
  const Sizes sizes(types, kv_heads, head_dim, pages, sequences);
  key_tiles_ = Buffer(sizes.key_tiles);
  value_tiles_ = Buffer(sizes.value_tiles);
  rings_ = Buffer(2 * sizes.rings);
  leading_ = Buffer(2 * sizes.leading);
  view_.kv_heads = kv_heads;
  view_.head_dim = head_dim;
  view_.ring = ring_rows(types);
  view_.window = static_cast<int>(types.window);
  view_.keys = make_side(*types.keys, head_dim);
  view_.values = make_side(*types.values, head_dim);
  view_.keys.tiles = key_tiles_.as<unsigned char>();
  view_.values.tiles = value_tiles_.as<unsigned char>();
  view_.keys.ring = rings_.as<uint16_t>();
  view_.values.ring = view_.keys.ring + sizes.rings / 2;
  view_.keys.leading = leading_.as<uint16_t>();
  view_.values.leading = view_.keys.leading + sizes.leading / 2;
  if (view_.keys.bits > 0) {
    offsets_ = Buffer(sizes.offsets);
    view_.key_offsets = offsets_.as<float>();
  }
  std::vector<float> factors;
  for (CodedSide* side : {&view_.keys, &view_.values}) {
    const std::vector<float> more = factors_of(head_dim, side->block);
    side->factor = std::abs(more[0]);
    for (size_t i = 0; i < more.size() && i < 128; ++i)
      if (more[i] < 0) view_.signs[i / 32] |= 1u << (i % 32);
    factors.insert(factors.end(), more.begin(), more.end());
  }
  factors_ = Buffer(factors.size() * sizeof(float));
  copy_to_device(factors_.as(), factors.data(), factors_.bytes(), nullptr);
  synchronize(nullptr);
  view_.keys.factors = factors_.as<const float>();
  view_.values.factors = view_.keys.factors + head_dim;
}

uint64_t CodedLayer::bytes(const CacheTypes& types, int kv_heads, int head_dim, int64_t pages,
                           int64_t sequences) {
  return Sizes(types, kv_heads, head_dim, pages, sequences).sum();
}

void CodedLayer::copy_page(int64_t from, int64_t to, Stream stream) const {
  for (const CodedSide* side : {&view_.keys, &view_.values}) {
    const int64_t size = int64_t{view_.kv_heads} * kPageTiles * side->tile_bytes;
    copy_on_device(side->tiles + to * size, side->tiles + from * size, static_cast<uint64_t>(size),
                   stream);
  }
}

void CodedLayer::copy_sequence(int64_t from, int64_t to, Stream stream) const {
  const int64_t width = int64_t{view_.kv_heads} * view_.head_dim;
  const auto copy = [&](auto* array, int64_t rows) {
    const int64_t size = rows * width;
    copy_on_device(array + to * size, array + from * size,
                   static_cast<uint64_t>(size) * sizeof(*array), stream);
  };
  for (const CodedSide* side : {&view_.keys, &view_.values}) {
    copy(side->ring, view_.ring);
    copy(side->leading, kLeadingPositions);
  }
  if (view_.key_offsets != nullptr) copy(view_.key_offsets, 1);
}

CodedView CodedLayer::view(const PageTable& table, const int32_t* kept) const {
  CodedView view = view_;
  view.pages = table.pages;
  view.per_sequence = table.per_sequence;
  view.kept = kept;
  return view;
}

std::vector<CodedLayers> layers_on_device(std::span<const CodedView> views) {
  std::vector<CodedLayers> result;
  for (const int dim : {64, 128, 256}) {
    CodedLayers layers;
    std::vector<CodedView> of_dim;
    for (const CodedView& view : views) {
      if (view.head_dim != dim) continue;
      of_dim.push_back(view);
      layers.kv_heads = std::max(layers.kv_heads, view.kv_heads);
    }
    if (of_dim.empty()) continue;
    layers.count = static_cast<int64_t>(of_dim.size());
    layers.head_dim = dim;
    layers.views = Buffer(of_dim.size() * sizeof(CodedView));
    copy_to_device(layers.views.as(), of_dim.data(), layers.views.bytes(), nullptr);
    synchronize(nullptr);
    result.push_back(std::move(layers));
  }
  return result;
}

}  // namespace walsh::cuda
