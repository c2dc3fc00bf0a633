// How GPU kernels read trellis codes, run on the host (emulated/device.h): every state of a lane's
// words, levels, and the sums of a k-tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "formats/trellis.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/gemv/trellis_dot.cuh"

namespace walsh::cuda {
namespace {

constexpr int kColumns = 256;  // of a k-tile
constexpr int kTiles = kColumns / kTileCols;

template <int Bits>
const TrellisCode& code_of() {
  constexpr const char* kNames[] = {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h"};
  return get_format(kNames[Bits - 4]).trellis;
}

// The tiles of a k-tile with random bits, and the words that every lane has of them.
template <int Bits>
struct KTile {
  std::array<std::array<std::byte, 16 * Bits>, kTiles> tile;
  uint32_t words[32][4 * TrellisDecoder<Bits>::kVectors] = {};

  explicit KTile(uint64_t seed) {
    Random random(seed);
    for (auto& bytes : tile)
      for (std::byte& b : bytes)
        b = static_cast<std::byte>(random.next() & 255);
    for (int lane = 0; lane < 32; ++lane) {
      for (int q = 0; q < kTrellisGroups; ++q) {
        const std::byte* from = tile_of(lane, q) + trellis_tile_byte(Bits, lane);
        for (int i = 0; i < 2 * Bits; ++i) {
          const int place = trellis_byte(Bits, q, i);
          words[lane][place / 4] |= std::to_integer<uint32_t>(from[i]) << (8 * (place % 4));
        }
      }
    }
  }

  const std::byte* tile_of(int lane, int q) const {
    return tile[static_cast<size_t>(4 * q + lane % 4)].data();
  }
  auto stream(int lane, int q) const {
    return TrellisDecoder<Bits>::stream(words[lane], words[trellis_lane_before(lane)], q);
  }
  int level(int row, int column) const {
    const int position = tile_position(row, column % kTileCols);
    const uint32_t state = trellis_state(
        code_of<Bits>(), tile[static_cast<size_t>(column / kTileCols)].data(), position / 2);
    return trellis_level_i8(code_of<Bits>(), state, position % 2);
  }
};

template <typename Bits>
class TrellisCodes : public testing::Test {};
using AllBits = testing::Types<std::integral_constant<int, 4>, std::integral_constant<int, 5>,
                               std::integral_constant<int, 6>, std::integral_constant<int, 7>,
                               std::integral_constant<int, 8>>;
TYPED_TEST_SUITE(TrellisCodes, AllBits);

template <int Bits, int Quad>
void expect_products(const KTile<Bits>& k_tile, int lane, int q) {
  const TrellisCode& code = code_of<Bits>();
  uint32_t p[4];
  TrellisDecoder<Bits>::template products<Quad>(k_tile.stream(lane, q), code.multiplier, p);
  for (int i = 0; i < 4; ++i) {
    const int step = 16 * (lane / 4) + 4 * Quad + i;
    EXPECT_EQ(p[i], trellis_state(code, k_tile.tile_of(lane, q), step) * code.multiplier)
        << "lane " << lane << " group " << q << " step " << step;
  }
}

TYPED_TEST(TrellisCodes, LanesHaveTheStatesOfTheirSteps) {
  constexpr int kBits = TypeParam::value;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const KTile<kBits> k_tile(seed);
    for (int lane = 0; lane < 32; ++lane) {
      for (int q = 0; q < kTrellisGroups; ++q) {
        expect_products<kBits, 0>(k_tile, lane, q);
        expect_products<kBits, 1>(k_tile, lane, q);
        expect_products<kBits, 2>(k_tile, lane, q);
        expect_products<kBits, 3>(k_tile, lane, q);
      }
    }
  }
}

TYPED_TEST(TrellisCodes, BytesAreLevelsOfHalfATile) {
  constexpr int kBits = TypeParam::value;
  const KTile<kBits> k_tile(30);
  for (int i = 0; i < 32 * kTrellisGroups * 4; ++i) {
    const int lane = i % 32, q = i / 32 % kTrellisGroups, half = i / 128 % 2, upper = i / 256;
    uint32_t words[2];
    TrellisDecoder<kBits>::decode_bytes(k_tile.stream(lane, q), upper, half,
                                        code_of<kBits>().multiplier, words[0], words[1]);
    for (int c = 0; c < 8; ++c) {
      const int column = 64 * q + 16 * (lane % 4) + 8 * upper + c;
      EXPECT_EQ(static_cast<int>(words[c / 4] >> (8 * (c % 4)) & 255) - 128,
                k_tile.level(lane / 4 + 8 * half, column))
          << "lane " << lane << " column " << column;
    }
  }
}

// Byte of a k-tile of Activations::q (weights/matrix.h).
int input_byte(int column) {
  const int c = column % 128;
  return column / 128 * 128 + c % 32 / 8 * 32 + c / 32 * 8 + c % 8;
}

// Inputs as InputImage has them, in shared memory.
void store_inputs(const std::vector<std::vector<int8_t>>& x, bool as_doubled, std::byte* image) {
  const int vectors = static_cast<int>(x.size());
  std::array<std::byte, kColumns> row;
  for (int n = 0; n < vectors; ++n) {
    for (int c = 0; c < kColumns; ++c)
      row[static_cast<size_t>(input_byte(c))] =
          static_cast<std::byte>(x[static_cast<size_t>(n)][static_cast<size_t>(c)]);
    for (int piece = 0; piece < 32; ++piece) {
      uint2 eight;
      std::memcpy(&eight, row.data() + 8 * piece, 8);
      if (as_doubled) {
        const uint2 twice[2] = {doubled(eight.x), doubled(eight.y)};
        std::memcpy(image + doubled_place(piece), twice, 16);
      } else {
        const int place = (piece / 16 * vectors + n) * 128 + (piece % 16 * 8 ^ (n & 1) * 16);
        std::memcpy(image + place, &eight, 8);
      }
    }
  }
}

std::vector<std::vector<int8_t>> random_inputs(int vectors) {
  Random random(7);
  std::vector<std::vector<int8_t>> x(static_cast<size_t>(vectors), std::vector<int8_t>(kColumns));
  for (auto& v : x)
    for (int8_t& value : v)
      value = static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
  return x;
}

template <int Bits, int Quads>
struct MaskedDecoder : TrellisDecoder<Bits> {
  static constexpr int kMaskedQuads = Quads;
};

// Sums of a k-tile by one warp against those of the levels: of all columns with their inputs' sums
// known, and of each 32 columns.
template <typename Decoder, int Bits, int Tiles8, bool Doubled>
void expect_sums(int vectors) {
  using Dot = TrellisDot<Decoder, Tiles8, Doubled>;
  const KTile<Bits> k_tile(11);
  const auto x = random_inputs(vectors);
  const uint32_t multiplier = code_of<Bits>().multiplier;
  std::vector<int> all(32 * Dot::kNTiles * 4), blocks(all.size() * 8);
  emulated::Block* block = nullptr;
  emulated::Block warp(32, 16 * 2 * kColumns, [&] {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane == 0) store_inputs(x, Doubled, static_cast<std::byte*>(block->shared()));
    __syncwarp();
    InputPlaces<Dot::kNTiles> p;
    for (int n = 0; n < Dot::kNTiles; ++n) {
      const int vector = Tiles8 == 0 ? 0 : std::min(8 * n + lane / 4, vectors - 1);
      p.b[n] = static_cast<uint32_t>(Doubled ? lane % 4 * 16
                                             : vector * 128 + lane % 4 * 32 + (vector & 1) * 16);
    }
    p.chunk = static_cast<uint32_t>(vectors * 128);
    typename Dot::Sums sums;
    for (int q = 0; q < kTrellisGroups; ++q) {
      const auto stream = k_tile.stream(lane, q);
      Dot::add_group(stream, multiplier, 0, p, q, sums);
      typename Dot::Sums apart[2];
      Dot::add_blocks(stream, multiplier, 0, p, q, apart);
      for (int i = 0; i < Dot::kNTiles * 4 * 2; ++i)
        blocks[static_cast<size_t>((lane * 8 + 2 * q + i % 2) * Dot::kNTiles * 4 + i / 2)] =
            apart[i % 2].of(i / 8, i / 2 % 4, 0);
    }
    for (int i = 0; i < Dot::kNTiles * 4; ++i) {
      const auto vector = static_cast<size_t>(
          Tiles8 == 0 ? 0 : std::min(8 * (i / 4) + 2 * (lane % 4) + i % 2, vectors - 1));
      const int inputs = std::accumulate(x[vector].begin(), x[vector].end(), 0);
      all[static_cast<size_t>(lane * Dot::kNTiles * 4 + i)] =
          sums.of(i / 4, i % 4, -Dot::kTimes * kTrellisZero * inputs);
    }
  });
  block = &warp;
  warp.run();
  for (int i = 0; i < 32 * Dot::kNTiles * 4; ++i) {
    const int lane = i / (Dot::kNTiles * 4), n = i / 4 % Dot::kNTiles, r = i % 4;
    const int row = lane / 4 + 8 * (r / 2), vector = 8 * n + lane % 4 * 2 + r % 2;
    if (vector >= vectors) continue;
    int expected = 0;
    for (int b = 0; b < 8; ++b) {
      int sum = 0;
      for (int c = 32 * b; c < 32 * b + 32; ++c)
        sum += k_tile.level(row, c) * x[static_cast<size_t>(vector)][static_cast<size_t>(c)];
      EXPECT_EQ(blocks[static_cast<size_t>((lane * 8 + b) * Dot::kNTiles * 4 + n * 4 + r)], sum)
          << "row " << row << " vector " << vector << " block " << b;
      expected += sum;
    }
    EXPECT_EQ(all[static_cast<size_t>(i)], expected) << "row " << row << " vector " << vector;
  }
}

TYPED_TEST(TrellisCodes, SumsAreThoseOfLevels) {
  constexpr int kBits = TypeParam::value;
  expect_sums<TrellisDecoder<kBits>, kBits, 0, false>(1);
  expect_sums<TrellisDecoder<kBits>, kBits, 0, true>(1);
  expect_sums<MaskedDecoder<kBits, 2>, kBits, 0, true>(1);
  expect_sums<MaskedDecoder<kBits, 4>, kBits, 0, true>(1);
  expect_sums<TrellisDecoder<kBits>, kBits, 1, false>(2);
  expect_sums<TrellisDecoder<kBits>, kBits, 2, false>(13);
}

}  // namespace
}  // namespace walsh::cuda
