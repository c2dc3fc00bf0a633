// Builds a coded cache by hand for tests, and reads the content of its tiles as
// kernels/cuda/attention/coded_tile.cuh says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "cache/cuda/coded_cache.h"
#include "cuda_buffers.h"

namespace walsh::cuda::test {

// Returns the types that a GPU stores.
inline std::vector<const CacheType*> gpu_cache_types() {
  std::vector<const CacheType*> types;
  for (const CacheType& type : all_cache_types()) {
    if (!type.largest_scale) types.push_back(&type);
  }
  return types;
}

inline int tile_code_size(const CacheType& type, int head_dim) {
  return kCacheTile * head_dim * (type.coded ? type.code.bits : 16) / 8;
}
inline int tile_size(const CacheType& type, int head_dim) {
  const auto groups = static_cast<int>(cache_groups(type, head_dim));
  return tile_code_size(type, head_dim) + kCacheTile * groups * 2;
}

// Reads a tile of 16 positions.
class TileReader {
 public:
  TileReader(const CacheType& type, bool key, int head_dim, const uint8_t* tile)
      : type_(type), key_(key), head_dim_(head_dim), tile_(tile) {}

  // Returns the code as encode_cache_rows has it.
  int code(int row, int col) const {
    const int stored = stored_code(row, col), bits = type_.code.bits;
    if (bits == 8) return stored ^ 0x80;
    const bool mirrored = bits == 4 && type_.code.fit != ScaleFit::absmax;
    return mirrored && stored < 8 ? 7 - stored : stored;
  }
  uint16_t scale(int row, int group) const {
    const auto groups = static_cast<int>(cache_groups(type_, head_dim_));
    const int index = key_ ? (row % 8 * groups + group) * 2 + row / 8
                           : (row % 8 / 2 * groups + group) * 4 + row / 8 * 2 + row % 2;
    return half(tile_code_size(type_, head_dim_) + 2 * index);
  }
  // Returns a value of a tile that is not coded.
  uint16_t value(int row, int col) const { return half(2 * (row * head_dim_ + col)); }

 private:
  uint16_t half(int at) const {
    uint16_t v;
    std::memcpy(&v, tile_ + at, 2);
    return v;
  }
  int nibble(int word, int lane, int index) const {
    const int byte = tile_[128 * word + 4 * lane + index / 2];
    return index % 2 == 0 ? byte & 15 : byte >> 4;
  }

  int stored_code(int row, int col) const {
    int lane, word = col / 32 * 2, index;
    if (key_) {
      lane = row % 8 * 4 + col % 8 / 2;
      word += row / 8;
      index = col % 32 / 8 * 2 + col % 2;
    } else {
      lane = col % 8 * 4 + row % 8 / 2;
      word += col % 32 / 16;
      index = col % 16 / 8 * 4 + row / 8 * 2 + row % 2;
    }
    switch (type_.code.bits) {
      case 8:
        return tile_[128 * (2 * word + index / 4) + 4 * lane + index % 4];
      case 4:
        return nibble(word, lane, index);
      case 2:
        return nibble(word / 2, lane, index) >> (2 * (word % 2)) & 3;
      default:
        break;
    }
    const int first = word / 4 * 3;
    if (word % 4 < 3) return nibble(first + word % 4, lane, index) & 7;
    int code = 0;
    for (int j = 0; j < 3; ++j)
      code |= nibble(first + j, lane, index) >> 3 << j;
    return code;
  }

  const CacheType& type_;
  bool key_;
  int head_dim_;
  const uint8_t* tile_;
};

struct CacheShape {
  const CacheType* keys;
  const CacheType* values;
  int kv_heads, head_dim;
  int sequences, per_sequence;  // pages
  int ring, window;

  const CacheType& type(bool key) const { return key ? *keys : *values; }
  int64_t heads() const { return int64_t{sequences} * kv_heads; }
};

// Its pages are scattered; tiles and leading positions are bytes of kBlank until something is
// stored.
class DeviceCache {
 public:
  static constexpr uint8_t kBlank = 0xa5;

  DeviceCache(const CacheShape& shape, const std::vector<int32_t>& kept,
              const std::vector<float>& key_offsets, uint64_t seed)
      : shape_(shape), offsets_(to_device(key_offsets)), kept_(to_device(kept)) {
    Random random(seed);
    for (int i = 0; i < shape.sequences * shape.per_sequence; ++i)
      pages_.push_back(i + 1);
    for (size_t i = pages_.size(); i > 1; --i)
      std::swap(pages_[i - 1], pages_[random.below(i)]);
    table_ = to_device(pages_);
    view.kv_heads = shape.kv_heads;
    view.head_dim = shape.head_dim;
    view.ring = shape.ring;
    view.window = shape.window;
    view.pages = table_.as<const int32_t>();
    view.per_sequence = shape.per_sequence;
    view.kept = kept_.as<const int32_t>();
    if (shape.keys->coded) view.key_offsets = offsets_.as<float>();
    make_side(*shape.keys, keys_, view.keys);
    make_side(*shape.values, values_, view.values);
  }

  // Rings are [sequence][kv_head][ring][head_dim].
  void set_rings(const std::vector<uint16_t>& keys, const std::vector<uint16_t>& values) {
    keys_.ring = to_device(keys);
    values_.ring = to_device(values);
    view.keys.ring = keys_.ring.as<uint16_t>();
    view.values.ring = values_.ring.as<uint16_t>();
  }

  // Reads the current content of the device.
  void read() {
    for (Side* side : {&keys_, &values_}) {
      side->read_tiles = to_host<uint8_t>(side->tiles);
      side->read_leading = to_host<uint16_t>(side->leading);
    }
    read_offsets_ = to_host<float>(offsets_);
  }
  const std::vector<uint16_t>& leading(bool key) const { return of(key).read_leading; }
  const std::vector<float>& key_offsets() const { return read_offsets_; }
  const std::vector<uint8_t>& tiles(bool key) const { return of(key).read_tiles; }
  // Returns where the tile of a position begins.
  size_t tile_at(bool key, int sequence, int head, int position) const {
    const int page =
        pages_[static_cast<size_t>(sequence * shape_.per_sequence + position / kPageTokens)];
    const int64_t tile =
        (int64_t{page} * shape_.kv_heads + head) * kPageTiles + position % kPageTokens / kCacheTile;
    return static_cast<size_t>(tile * tile_size(shape_.type(key), shape_.head_dim));
  }

  CodedView view;

 private:
  struct Side {
    Buffer tiles, ring, leading;
    std::vector<uint8_t> read_tiles;
    std::vector<uint16_t> read_leading;
  };
  const Side& of(bool key) const { return key ? keys_ : values_; }

  void make_side(const CacheType& type, Side& side, CodedSide& out) {
    const auto pages = static_cast<int64_t>(pages_.size()) + 1;
    out.bits = type.coded ? type.code.bits : 0;
    out.groups = static_cast<int>(cache_groups(type, shape_.head_dim));
    out.tile_bytes = tile_size(type, shape_.head_dim);
    out.code = group_code(type);
    const auto bytes = static_cast<size_t>(pages * shape_.kv_heads * kPageTiles * out.tile_bytes);
    side.tiles = to_device(std::vector<uint8_t>(bytes, kBlank));
    const auto leading =
        static_cast<size_t>(shape_.heads() * kLeadingPositions * shape_.head_dim * 2);
    side.leading = to_device(std::vector<uint8_t>(leading, kBlank));
    out.tiles = side.tiles.as<unsigned char>();
    out.leading = side.leading.as<uint16_t>();
  }

  CacheShape shape_;
  std::vector<int32_t> pages_;
  Buffer offsets_, kept_, table_;
  Side keys_, values_;
  std::vector<float> read_offsets_;
};

}  // namespace walsh::cuda::test
