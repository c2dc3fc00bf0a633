// Tests decoding of trellis codes by GPU kernels, run on the host (emulated/device.h): every state
// of a lane's words, levels, and the sums of a k-tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "codec/trellis/trellis.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/gemv/gemv_kernel.cuh"
#include "kernels/cuda/weights/weight_tile.cuh"

namespace walsh::cuda {
namespace {

constexpr int kColumns = 256;  // of a k-tile
constexpr int kTiles = kColumns / kTileCols;

template <int Bits>
const TrellisCode& code_of() {
  constexpr const char* kNames[] = {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h"};
  return get_format(kNames[Bits - 4]).trellis;
}

// Holds the tiles of a k-tile with random bits, and the words that every lane has of them.
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

// Tests values for dequantizing a matrix: pair [c][i][p] of a lane has columns 128 c + 32 i + 8 t +
// 2 p and the next.
TYPED_TEST(TrellisCodes, LevelsOfAWeightTileHaveTheirColumns) {
  constexpr int kBits = TypeParam::value;
  using Decoder = TrellisDecoder<kBits>;
  const KTile<kBits> k_tile(31);
  detail::TileStage<Decoder> stage;
  auto* words = reinterpret_cast<uint32_t*>(stage.codes);
  for (int i = 0; i < 32 * Decoder::kWords; ++i) {
    const int lane = i / Decoder::kWords, w = i % Decoder::kWords;
    const int in_vector = Decoder::kWords - w / 4 * 4 < 4 ? 2 : 4;
    words[w / 4 * 128 + lane * in_vector + w % 4] = k_tile.words[lane][w];
  }
  detail::PassView view;
  view.level_low.words[0] = code_of<kBits>().multiplier;
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32, half = i / 32;
    uint32_t levels[2][4][4];
    detail::decode_levels<Decoder>(view, stage, lane, half, levels);
    for (int c = 0; c < kColumns; ++c) {
      if (c % 32 / 8 != lane % 4) continue;
      const uint32_t pair = levels[c / 128][c % 128 / 32][c % 8 / 2];
      EXPECT_EQ(f16_to_f32(static_cast<uint16_t>(pair >> (16 * (c % 2)))),
                static_cast<float>(k_tile.level(lane / 4 + 8 * half, c)))
          << "lane " << lane << " half " << half << " column " << c;
    }
  }
}

// Returns the byte of a k-tile of Activations::q (weights/matrix.h).
int input_byte(int column) {
  const int c = column % 128;
  return column / 128 * 128 + c % 32 / 8 * 32 + c / 32 * 8 + c % 8;
}

// Stores inputs as InputImage has them, in shared memory.
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

// Compares sums of a k-tile by one warp with those of the levels: of all columns with their inputs'
// sums known, and of each 32 columns.
template <int Bits, int Tiles8, bool Doubled>
void expect_sums(int vectors) {
  using Dot = TrellisDot<TrellisDecoder<Bits>, Tiles8, Doubled>;
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
          sums.of(i / 4, i % 4, -kTrellisZero * inputs);
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
  expect_sums<kBits, 0, false>(1);
  expect_sums<kBits, 0, true>(1);
  for (const int vectors : {2, 3, 8})
    expect_sums<kBits, 1, false>(vectors);
  expect_sums<kBits, 2, false>(13);
}

// Launches the kernel of products with `rows` rows, k-tiles enough for every warp to pass from tile
// to tile, and scales that differ.
template <typename Decoder, int Bits, int Flush, int Tiles8>
void expect_products_of_launch(int rows, int k_tiles, int vectors) {
  const int tiles = (rows + kTileRows - 1) / kTileRows, cols = k_tiles * kColumns;
  const int group = Flush == 32 ? 32 : 256, x_group = 128;
  std::vector<KTile<Bits>> weights;
  for (int i = 0; i < tiles * k_tiles; ++i)
    weights.emplace_back(100 + static_cast<uint64_t>(i));
  constexpr int kWords = 2 * Bits;
  std::vector<uint4> codes(weights.size() * kWords * 8);
  auto* words = reinterpret_cast<uint32_t*>(codes.data());
  for (size_t i = 0; i < weights.size(); ++i, words += kWords * 32) {
    for (int lane = 0; lane < 32; ++lane)
      for (int w = 0; w < kWords; ++w)
        words[w / 4 * 128 + lane * (kWords - w / 4 * 4 < 4 ? 2 : 4) + w % 4] =
            weights[i].words[lane][w];
  }
  Random random(5);
  const int groups = cols / group;
  std::vector<uint16_t> scales(static_cast<size_t>(tiles * groups * kTileRows));
  for (uint16_t& s : scales)
    s = f32_to_f16(static_cast<float>(0.01 + random.uniform()));
  std::vector<std::vector<int8_t>> x;
  std::vector<int8_t> q;
  std::vector<float> x_scales;
  std::vector<int32_t> x_sums;
  for (int n = 0; n < vectors; ++n) {
    std::vector<int8_t> order(static_cast<size_t>(cols));
    x.emplace_back(order.size());
    for (int c = 0; c < cols; ++c) {
      x.back()[static_cast<size_t>(c)] =
          static_cast<int8_t>(static_cast<int>(random.next() % 255) - 127);
      order[static_cast<size_t>(c / kColumns * kColumns + input_byte(c % kColumns))] =
          x.back()[static_cast<size_t>(c)];
    }
    q.insert(q.end(), order.begin(), order.end());
    for (int c = 0; c < cols; c += x_group) {
      x_sums.push_back(std::accumulate(x.back().begin() + c, x.back().begin() + c + x_group, 0));
      x_scales.push_back(static_cast<float>(0.5 + random.uniform()));
    }
  }
  std::vector<float> y(static_cast<size_t>(vectors * rows), -1);
  GemvArgs args;
  for (TileSet& set : args.set)
    set.first_tile = INT32_MAX;
  args.set[0].first_tile = 0;
  args.set[0].codes = codes.data();
  args.set[0].scales = reinterpret_cast<const std::byte*>(scales.data());
  args.set[0].y = y.data();
  args.set[0].ldy = args.set[0].rows = rows;
  args.tiles = tiles;
  args.k_tiles = args.slice_k_tiles = k_tiles;
  args.m = args.vectors = vectors;
  args.table.words[0] = code_of<Bits>().multiplier;
  args.scale_vectors = 2 * kColumns / group;
  args.scale_step = args.scale_vectors * 16;
  args.scale_tile = groups * kTileRows * 2;
  args.scale_shift = group == 32 ? 0 : 3;
  args.q = q.data();
  args.x_scales = x_scales.data();
  args.x_sums = x_sums.data();
  const int blocks = std::min(tiles, 2);
  args.tiles_per_block = tiles / blocks;
  args.blocks_with_more = tiles % blocks;
  using Block = GemvBlock<Decoder, Flush, Tiles8>;
  const int bytes = Block::kMemory.ring_bytes() + Block::kMemory.sum_bytes +
                    k_tiles * input_bytes(vectors, Tiles8, x_group, Tiles8 == 0);
  gridDim = dim3(static_cast<unsigned>(blocks));
  blockDim = dim3(Block::kWarps * 32);
  for (blockIdx = dim3(0, 0, 0); blockIdx.x < gridDim.x; ++blockIdx.x) {
    emulated::Block* running = nullptr;
    emulated::Block block(Block::kWarps * 32, static_cast<size_t>(bytes),
                          [&] { Block(args, static_cast<std::byte*>(running->shared())).run(); });
    running = &block;
    block.run();
  }
  blockIdx = dim3(0, 0, 0);
  for (int n = 0; n < vectors; ++n) {
    for (int row = 0; row < rows; ++row) {
      double sum = 0, size = 0;
      for (int c = 0; c < cols; ++c) {
        const int tile = row / kTileRows, r = row % kTileRows;
        const auto at =
            static_cast<size_t>((tile * groups + c / group) * kTileRows + r % 8 * 2 + r / 8);
        const int level =
            weights[static_cast<size_t>(tile * k_tiles + c / kColumns)].level(r, c % kColumns);
        const double term =
            static_cast<double>(f16_to_f32(scales[at])) * level *
            x[static_cast<size_t>(n)][static_cast<size_t>(c)] *
            static_cast<double>(x_scales[static_cast<size_t>(n * cols / x_group + c / x_group)]);
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(y[static_cast<size_t>(n * rows + row)], sum, 1e-6 * size)
          << "vector " << n << " row " << row;
    }
  }
}

TYPED_TEST(TrellisCodes, LaunchesMultiplyWithLevels) {
  constexpr int kBits = TypeParam::value;
  using Decoder = TrellisDecoder<kBits>;
  expect_products_of_launch<Decoder, kBits, 128, 0>(40, 9, 1);
  if constexpr (kBits == 5) expect_products_of_launch<Decoder, kBits, 32, 0>(16, 3, 1);
  if constexpr (kBits == 6) {
    expect_products_of_launch<Decoder, kBits, 128, 1>(16, 4, 5);
    expect_products_of_launch<Decoder, kBits, 32, 1>(16, 1, 2);
    expect_products_of_launch<Decoder, kBits, 128, 2>(16, 2, 11);
  }
}

}  // namespace
}  // namespace walsh::cuda
