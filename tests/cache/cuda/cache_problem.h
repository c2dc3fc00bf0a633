// Makes the coded cache of a sequence of random words for tests, decodes it as
// kernels/cuda/attention/coded_tile.cuh says, on host and device, and makes query rows that attend
// to it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "cache/cuda/coded_cache.h"
#include "cuda_buffers.h"
#include "rotate/rotation.h"

namespace walsh::cuda::test {

inline constexpr float kUntouched = -7.0f;
inline constexpr int kSequences = 2, kSequence = 1;  // the one that is read

enum class Form { none, leading, stored, exact };

struct Case {
  int dim = 64, kv_heads = 1, group = 1;
  int exact = 32;      // of the cache
  int64_t window = 0;  // of the layer
  int position = 0, rows = 1;
  bool kept = false;  // as much as can be
  int key_bits = 0, value_bits = 0, groups = 1, block = 0;
  int value_groups = 0;  // 0: as those of keys
  float cap = 0;         // of the logits

  int end() const { return position + rows; }
  int kept_positions() const { return kept ? position / kCacheBundle * kCacheBundle : 0; }
  int stored_end(int p) const {
    return std::max(kept_positions(), std::max(0, p - exact) / kCacheBundle * kCacheBundle);
  }
  int border() const { return stored_end(end() - 1); }
  // Says how the query at p sees j.
  Form form(int p, int j) const {
    if (j > p || (window > 0 && j <= p - window)) return Form::none;
    if (j >= stored_end(p)) return Form::exact;
    return window == 0 && j < kLeadingPositions ? Form::leading : Form::stored;
  }
};

// Holds keys or values on the host: everything that nothing may read is NaN.
struct HostSide {
  bool keys = false;
  int bits = 0, groups = 0, dim = 0, kv_heads = 0, ring_rows = 0;
  int64_t tile_bytes = 0;
  HalfLevels levels;
  std::vector<unsigned char> tiles;            // as CodedSide
  std::vector<uint16_t> ring, leading, fresh;  // fresh: [kv_head][capacity][dim]
  std::vector<float> offsets;                  // [sequence][kv_head][dim]

  uint16_t half(const unsigned char* at) const { return static_cast<uint16_t>(at[0] | at[1] << 8); }
  uint32_t word(const unsigned char* tile, int index, int lane) const {
    const unsigned char* at = tile + (index * 32 + lane) * 4;
    return uint32_t{half(at)} | uint32_t{half(at + 2)} << 16;
  }
  // Returns nibble n of nibble word w of a lane.
  int code(const unsigned char* tile, int w, int n, int lane) const {
    if (bits == 8) return static_cast<int>(word(tile, 2 * w + n / 4, lane) >> (8 * (n % 4)) & 255);
    if (bits == 4) return static_cast<int>(word(tile, w, lane) >> (4 * n) & 15);
    if (bits == 2) return static_cast<int>(word(tile, w / 2, lane) >> (4 * n + 2 * (w % 2)) & 3);
    if (w % 4 < 3) return static_cast<int>(word(tile, w / 4 * 3 + w % 4, lane) >> (4 * n) & 7);
    int code = 0;
    for (int i = 0; i < 3; ++i)
      code |= static_cast<int>(word(tile, w / 4 * 3 + i, lane) >> (4 * n + 3) & 1) << i;
    return code;
  }
  float level(int code) const {
    if (bits == 8) return static_cast<float>(code - 128);
    const uint32_t high = levels.high[code / 4] >> (8 * (code % 4)) & 255;
    const uint32_t low = levels.low[code % 8 / 4] >> (8 * (code % 4)) & 255;
    return f16_to_f32(static_cast<uint16_t>(high << 8 | low));
  }
  // Returns position j of a tile.
  uint16_t stored(const unsigned char* tile, int head, int j, int c) const {
    if (bits == 0) return half(tile + (j * dim + c) * 2);
    const int b = c / 32, g = keys ? j % 8 : c % 8, t = (keys ? c : j) % 8 / 2;
    const int w = 2 * b + (keys ? j / 8 : c % 32 / 16);
    const int n = keys ? c % 32 / 8 * 2 + c % 2 : c % 16 / 8 * 4 + j / 8 * 2 + j % 2;
    const int group = groups > 1 ? b : 0;
    const int scale =
        keys ? (g * groups + group) * 2 + j / 8 : (t * groups + group) * 4 + j / 8 * 2 + j % 2;
    const unsigned char* scales = tile + 16 * dim * bits / 8;
    float v = level(code(tile, w, n, 4 * g + t)) * f16_to_f32(half(scales + 2 * scale));
    if (keys) v += offsets[static_cast<size_t>((kSequence * kv_heads + head) * dim + c)];
    return f32_to_f16(v);
  }
};

class Problem {
 public:
  Case c;
  HostSide keys, values;
  std::vector<float> q;
  int64_t ldq, ldo, per_sequence;
  int fresh_capacity, old_capacity, first;
  std::vector<int32_t> table;
  float scale;

  explicit Problem(const Case& given, uint64_t seed = 1) : c(given), random_(seed) {
    per_sequence = (c.end() + kPageTokens - 1) / kPageTokens + 1;
    for (int64_t i = 0; i < kSequences * per_sequence; ++i)
      table.push_back(static_cast<int32_t>(i + 1));
    for (size_t i = table.size(); i > 1; --i)
      std::swap(table[i - 1], table[random_.below(i)]);
    first = c.stored_end(c.position);
    fresh_capacity = c.end() - first + 5;
    old_capacity = c.border() + 7;
    keys.keys = true;
    fill(keys, c.key_bits);
    fill(values, c.value_bits);
    ldq = c.kv_heads * c.group * c.dim + 6;
    ldo = ldq - 4;
    scale = static_cast<float>(1 / std::sqrt(c.dim));
    for (int64_t i = 0; i < c.rows * ldq; ++i)
      q.push_back(static_cast<float>(random_.normal()));
  }

  const unsigned char* tile(const HostSide& side, int head, int tile) const {
    const auto at = static_cast<size_t>(kSequence * per_sequence + tile / kPageTiles);
    return side.tiles.data() +
           ((table[at] * c.kv_heads + head) * kPageTiles + tile % kPageTiles) * side.tile_bytes;
  }
  size_t fresh_at(int head, int position, int column) const {
    return static_cast<size_t>((head * fresh_capacity + position - first) * c.dim + column);
  }
  size_t leading_at(int head, int position, int column) const {
    return static_cast<size_t>(
        ((kSequence * c.kv_heads + head) * kLeadingPositions + position) * c.dim + column);
  }
  size_t ring_at(int head, int position, int column) const {
    const int rows = keys.ring_rows;
    return static_cast<size_t>(((kSequence * c.kv_heads + head) * rows + position % rows) * c.dim +
                               column);
  }
  uint16_t stored(const HostSide& side, int head, int j, int column) const {
    return side.stored(tile(side, head, j / kCacheTile), head, j % kCacheTile, column);
  }
  uint16_t at(const HostSide& side, Form form, int head, int j, int column) const {
    if (form == Form::leading) return side.leading[leading_at(head, j, column)];
    if (form == Form::exact) return side.fresh[fresh_at(head, j, column)];
    return stored(side, head, j, column);
  }

  // Rings hold what is fresh, and NaN elsewhere, as decoding finds them.
  void fill_rings() {
    for (HostSide* side : {&keys, &values}) {
      std::fill(side->ring.begin(), side->ring.end(), kHalfNan);
      for (int h = 0; h < c.kv_heads; ++h)
        for (int j = first; j < c.end(); ++j)
          std::copy_n(side->fresh.begin() + static_cast<std::ptrdiff_t>(fresh_at(h, j, 0)), c.dim,
                      side->ring.begin() + static_cast<std::ptrdiff_t>(ring_at(h, j, 0)));
    }
  }

  // Sets the value of every column of the rows that are read, by form.
  void set_values(const std::function<float(Form, int, int)>& value) {
    for (int h = 0; h < c.kv_heads; ++h) {
      for (int d = 0; d < c.dim; ++d) {
        for (int j = 0; j < kLeadingPositions; ++j)
          values.leading[leading_at(h, j, d)] = f32_to_f16(value(Form::leading, j, d));
        for (int j = first; j < c.end(); ++j)
          values.fresh[fresh_at(h, j, d)] = f32_to_f16(value(Form::exact, j, d));
        for (int j = 0; j < c.border(); ++j) {
          const uint16_t half = f32_to_f16(value(Form::stored, j, d));
          auto* to = const_cast<unsigned char*>(tile(values, h, j / kCacheTile)) +
                     (j % kCacheTile * c.dim + d) * 2;
          to[0] = static_cast<unsigned char>(half & 255);
          to[1] = static_cast<unsigned char>(half >> 8);
        }
      }
    }
  }

 private:
  uint16_t number(double size) {
    return f32_to_f16(static_cast<float>(size * (2 * random_.uniform() - 1)));
  }

  void fill(HostSide& side, int bits) {
    side.bits = bits;
    const int groups = side.keys || c.value_groups == 0 ? c.groups : c.value_groups;
    side.groups = bits == 0 ? 0 : groups;
    side.dim = c.dim;
    side.kv_heads = c.kv_heads;
    side.ring_rows = (c.exact + kCacheBundle + kPageTokens) / kPageTokens * kPageTokens;
    side.tile_bytes = bits == 0 ? 16 * c.dim * 2 : 16 * c.dim * bits / 8 + 16 * groups * 2;
    for (int i = 0; i < 16; ++i) {  // levels from 0.5 to 3.9, of both signs
      const uint32_t high = (i % 2 == 0 ? 0x80u : 0u) | static_cast<uint32_t>(0x38 + i * 5 % 12);
      side.levels.high[i / 4] |= high << (8 * (i % 4));
      if (i < 8)
        side.levels.low[i / 4] |= static_cast<uint32_t>(random_.below(256)) << (8 * (i % 4));
    }
    side.tiles.assign((table.size() + 1) * static_cast<size_t>(c.kv_heads * kPageTiles) *
                          static_cast<size_t>(side.tile_bytes),
                      0xff);  // NaN
    for (int h = 0; h < c.kv_heads; ++h)
      for (int j = 0; j < c.border() / kCacheTile; ++j)
        fill_tile(side, const_cast<unsigned char*>(tile(side, h, j)));
    const auto heads = static_cast<size_t>(kSequences * c.kv_heads),
               dim = static_cast<size_t>(c.dim);
    for (auto& [rows, count] : {std::pair{&side.ring, heads * static_cast<size_t>(side.ring_rows)},
                                std::pair{&side.leading, heads * kLeadingPositions}}) {
      rows->resize(count * dim);
      for (uint16_t& v : *rows)
        v = number(2);
    }
    for (size_t i = 0; i < heads * dim; ++i)
      side.offsets.push_back(f16_to_f32(number(1)));
    side.fresh.assign(static_cast<size_t>(c.kv_heads * fresh_capacity) * dim, kHalfNan);
    for (int h = 0; h < c.kv_heads; ++h)
      for (size_t i = fresh_at(h, first, 0); i < fresh_at(h, c.end(), 0); ++i)
        side.fresh[i] = number(2);
  }

  void fill_tile(const HostSide& side, unsigned char* tile) {
    const int codes = side.bits == 0 ? 0 : 16 * c.dim * side.bits / 8;
    for (int i = 0; i < codes; ++i)
      tile[i] = static_cast<unsigned char>(random_.next());
    const double size = side.bits == 8 ? 1.0 / 64 : 1;
    for (int64_t i = codes; i < side.tile_bytes; i += 2) {
      const double v =
          side.bits == 0 ? 4 * random_.uniform() - 2 : size * (0.1 + 0.8 * random_.uniform());
      const uint16_t half = f32_to_f16(static_cast<float>(v));
      tile[i] = static_cast<unsigned char>(half & 255);
      tile[i + 1] = static_cast<unsigned char>(half >> 8);
    }
  }

  Random random_;
};

// Puts a Problem on the device.
class DeviceProblem {
 public:
  explicit DeviceProblem(const Problem& problem) : p_(problem) {
    const Case& c = p_.c;
    const float norm = 1.0f / std::sqrt(static_cast<float>(std::max(c.block, 1)));
    std::vector<float> factors;
    for (int i = 0; i < c.dim; ++i)
      factors.push_back(rotation_sign(42, static_cast<uint64_t>(i)) * norm);
    factors_ = to_device(factors);
    const HostSide* sides[2] = {&p_.keys, &p_.values};
    CodedSide* views[2] = {&view.keys, &view.values};
    for (int i = 0; i < 2; ++i) {
      tiles_[i] = to_device(sides[i]->tiles);
      ring_[i] = to_device(sides[i]->ring);
      leading_[i] = to_device(sides[i]->leading);
      fresh_[i] = to_device(sides[i]->fresh);
      old_[i] = to_device(std::vector<uint16_t>(
          static_cast<size_t>(c.kv_heads) * static_cast<size_t>(p_.old_capacity * c.dim),
          kHalfNan));
      CodedSide& side = *views[i];
      side.bits = sides[i]->bits;
      side.groups = sides[i]->groups;
      side.tile_bytes = static_cast<int>(sides[i]->tile_bytes);
      side.block = c.block;
      side.factors = factors_.as<const float>();
      side.levels = sides[i]->levels;
      side.tiles = tiles_[i].as<unsigned char>();
      side.ring = ring_[i].as<uint16_t>();
      side.leading = leading_[i].as<uint16_t>();
    }
    offsets_ = to_device(p_.keys.offsets);
    pages_ = to_device(p_.table);
    kept_ = to_device(std::vector<int32_t>{1 << 20, c.kept_positions()});
    if (c.key_bits > 0) view.key_offsets = offsets_.as<float>();
    view.kv_heads = c.kv_heads;
    view.head_dim = c.dim;
    view.ring = p_.keys.ring_rows;
    view.window = c.exact;
    view.pages = pages_.as<const int32_t>();
    view.per_sequence = p_.per_sequence;
    view.kept = kept_.as<const int32_t>();
    fresh = {fresh_[0].as<uint16_t>(), fresh_[1].as<uint16_t>(), p_.fresh_capacity, p_.first};
    old = {old_[0].as<uint16_t>(), old_[1].as<uint16_t>(), p_.old_capacity, 0};
  }

  void load() const {
    CodedView from = view;
    if (p_.c.window > 0) from.keys.leading = from.values.leading = nullptr;
    load_bundles(from, {kSequence, 0, p_.c.border() / kCacheBundle}, old, nullptr);
  }
  // Attends as a prompt does.
  std::vector<float> attend() const {
    return attend([&](const CodedAttention& call) {
      attend_prefill(call, fresh, p_.c.border() > 0 ? old : FreshRows{}, p_.c.position, nullptr);
    });
  }
  // Attends with rows of decoding, twice over the same scratch, which must give the same bits.
  std::vector<float> attend_single(int64_t longest) const {
    const int heads = p_.c.kv_heads * p_.c.group;
    const AttentionScratch scratch(p_.c.rows, heads, p_.c.kv_heads, p_.c.dim);
    const auto once = [&] {
      return attend(
          [&](const CodedAttention& call) { attend_decode(call, longest, scratch, nullptr); });
    };
    const std::vector<float> first = once(), second = once();
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);
    return first;
  }

  std::vector<uint16_t> old_rows(int side) const { return to_host<uint16_t>(old_[side]); }
  std::vector<uint16_t> fresh_rows(int side) const { return to_host<uint16_t>(fresh_[side]); }
  std::vector<uint16_t> ring_rows(int side) const { return to_host<uint16_t>(ring_[side]); }

  CodedView view;
  FreshRows fresh, old;

 private:
  std::vector<float> attend(const std::function<void(const CodedAttention&)>& kernel) const {
    const Case& c = p_.c;
    std::vector<int32_t> at;
    for (int t = 0; t < c.rows; ++t)
      at.push_back(c.position + t);
    const Buffer positions = to_device(at);
    const Buffer sequences =
        to_device(std::vector<int32_t>(static_cast<size_t>(c.rows), kSequence));
    const Buffer q = to_device(p_.q);
    const Buffer out =
        to_device(std::vector<float>(static_cast<size_t>(c.rows * p_.ldo), kUntouched));
    CodedAttention call;
    call.cache = &view;
    call.rows = {positions.as<const int32_t>(), sequences.as<const int32_t>()};
    call.m = c.rows;
    call.heads = c.kv_heads * c.group;
    call.options.window = c.window;
    call.options.scale = p_.scale;
    call.options.logit_cap = c.cap;
    call.q = q.as<const float>();
    call.ldq = p_.ldq;
    call.out = out.as<float>();
    call.ldo = p_.ldo;
    kernel(call);
    return to_host<float>(out);
  }

  const Problem& p_;
  Buffer tiles_[2], ring_[2], leading_[2], fresh_[2], old_[2], offsets_, factors_, pages_, kept_;
};

inline std::string name_of(const Case& c) {
  return (testing::Message() << "head_dim " << c.dim << " heads " << c.group << " * " << c.kv_heads
                             << " exact " << c.exact << " window " << c.window << " position "
                             << c.position << " rows " << c.rows << " kept " << c.kept << " bits "
                             << c.key_bits << ", " << c.value_bits << " block " << c.block
                             << " cap " << c.cap)
      .GetString();
}

inline constexpr int kBits[] = {0, 2, 3, 4, 8};

}  // namespace walsh::cuda::test
