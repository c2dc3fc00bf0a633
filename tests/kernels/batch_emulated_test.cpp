// Tests products of a batch with coded weights, run on the host (emulated/device.h):
// the order of operands, stages and barriers, and how blocks share blocks of results.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL
//
#include "kernels/cuda/gemm/batch_pack.cu"
#include "kernels/cuda/gemm/batch_tile.cuh"

namespace walsh::cuda::detail {
namespace {

// Holds a lane's words of a k-tile.
template <typename Decoder>
struct LaneWords {
  uint32_t word[4 * Decoder::kVectors] = {};

  LaneWords(const std::byte* k_tile, int lane) {
    constexpr int kWhole = Decoder::kWords / 4;
    for (int v = 0; v < kWhole; ++v)
      std::memcpy(word + 4 * v, k_tile + v * 512 + lane * 16, 16);
    if (kWhole < Decoder::kVectors)
      std::memcpy(word + 4 * kWhole, k_tile + kWhole * 512 + lane * 8, 8);
  }
};

template <int Bits>
int level_of(ScalarDecoder<Bits>, const std::byte* k_tile, const LevelTable& table, int row,
             int column) {
  const LaneWords<ScalarDecoder<Bits>> words(k_tile, row % 8 * 4 + column % 32 / 8);
  uint32_t levels[2];
  ScalarDecoder<Bits>::decode(words.word + (column / 128 * 2 + row / 8) * Bits, column % 128 / 32,
                              table, levels[0], levels[1]);
  return static_cast<int8_t>(levels[column % 8 / 4] >> (8 * (column % 4)));
}

template <int Bits>
int level_of(TrellisDecoder<Bits>, const std::byte* k_tile, const LevelTable& table, int row,
             int column) {
  using Decoder = TrellisDecoder<Bits>;
  const int lane = row % 8 * 4 + column % 64 / 16;
  const LaneWords<Decoder> words(k_tile, lane), before(k_tile, trellis_lane_before(lane));
  const auto stream = Decoder::stream(words.word, before.word, column / 64);
  uint32_t p[4];
  switch (column % 16 / 4) {
    case 0:
      Decoder::template products<0>(stream, table.words[0], p);
      break;
    case 1:
      Decoder::template products<1>(stream, table.words[0], p);
      break;
    case 2:
      Decoder::template products<2>(stream, table.words[0], p);
      break;
    default:
      Decoder::template products<3>(stream, table.words[0], p);
      break;
  }
  const uint32_t levels = Decoder::biased(p[2 * (row / 8)], p[2 * (row / 8) + 1]);
  return static_cast<int>(levels >> (8 * (column % 4)) & 255) - 128;
}

struct Case {
  std::vector<int> rows;  // of matrices that are multiplied together
  int k_tiles = 2, m = 20, planes = 1, group = 128;
  bool add = false, offsets = false;
};

// Holds random codes of a matrix, and what they mean.
template <typename Decoder>
struct Codes {
  int rows, k_tiles, group;
  std::vector<uint4> codes;
  std::vector<uint32_t> scales, offsets, row_factors;
  std::vector<float> bias;

  Codes(int n, const Case& c, Random& random) : rows(n), k_tiles(c.k_tiles), group(c.group) {
    const auto tiles = static_cast<size_t>((n + 15) / 16), steps = static_cast<size_t>(k_tiles);
    codes.resize(tiles * steps * Decoder::kWords * 8);
    for (size_t i = 0; i < codes.size() * 16; ++i)
      reinterpret_cast<std::byte*>(codes.data())[i] = static_cast<std::byte>(random.next() & 255);
    const auto fill = [&](std::vector<uint32_t>& to, size_t words, double low, double high) {
      for (size_t i = 0; i < words; ++i) {
        const auto half = [&] {
          return uint32_t{f32_to_f16(static_cast<float>(low + (high - low) * random.uniform()))};
        };
        const uint32_t first = half();
        to.push_back(first | half() << 16);
      }
    };
    fill(scales, tiles * steps * static_cast<size_t>(256 / group) * 8, 0.01, 0.1);
    if (c.offsets) fill(offsets, tiles * steps * 8, -0.1, 0.1);
    if (kIsTrellis<Decoder>) fill(row_factors, tiles * 8, 0.5, 1.5);
    for (int i = 0; i < n; ++i)
      bias.push_back(static_cast<float>(random.normal()));
  }

  static float side(const std::vector<uint32_t>& of, size_t group_of_tile, int row) {
    return f16_to_f32(static_cast<uint16_t>(of[group_of_tile * 8 + static_cast<size_t>(row % 8)] >>
                                            (row % 16 / 8 * 16)));
  }
  double weight(const LevelTable& table, float unit, int row, int column) const {
    const auto k_tile = static_cast<size_t>(row / 16 * k_tiles + column / 256);
    const auto* bytes = reinterpret_cast<const std::byte*>(codes.data()) +
                        k_tile * static_cast<size_t>(Decoder::kWords) * 128;
    const auto groups = static_cast<size_t>(256 / group);
    double w = double{unit} * level_of(Decoder{}, bytes, table, row % 16, column % 256) *
               side(scales, k_tile * groups + static_cast<size_t>(column % 256 / group), row);
    if (!offsets.empty()) w += side(offsets, k_tile, row);
    if (!row_factors.empty()) w *= side(row_factors, static_cast<size_t>(row / 16), row);
    return w;
  }
};

// Holds inputs as Activations has them, and as numbers.
struct Inputs {
  std::vector<int8_t> q;
  std::vector<float> scales;
  std::vector<double> values;

  Inputs(const Case& c, Random& random) {
    const int cols = c.k_tiles * 256;
    values.resize(static_cast<size_t>(c.m * cols));
    q.resize(values.size() * static_cast<size_t>(c.planes));
    for (int row = 0; row < c.m * c.planes; ++row) {
      for (int column = 0; column < cols; ++column) {
        if (column % 128 == 0)
          scales.push_back(static_cast<float>((row % c.planes ? 1e-4 : 1e-2) * random.uniform()));
        const auto value = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
        q[static_cast<size_t>(row * cols + column / 128 * 128 + activation_byte(column % 128))] =
            value;
        values[static_cast<size_t>(row / c.planes * cols + column)] +=
            double{scales.back()} * value;
      }
    }
  }
};

template <typename Decoder, int Vectors, int Groups>
void expect_products(const Case& c) {
  Random random(static_cast<uint64_t>(c.m + c.k_tiles * 1000));
  const int cols = c.k_tiles * 256;
  const Inputs x(c, random);
  LevelTable table{};
  for (uint32_t& word : table.words)
    for (int i = 0; i < 4; ++i)
      word |= static_cast<uint32_t>((random.below(255) + 129) & 255) << (8 * i);
  if (kIsTrellis<Decoder>) table.words[0] = 0x9E3779B1u;
  std::vector<Codes<Decoder>> matrices;
  std::vector<std::vector<float>> y;
  BatchLaunch work;
  for (const int rows : c.rows) {
    matrices.emplace_back(rows, c, random);
    y.emplace_back(static_cast<size_t>(c.m * (rows + 3)), 2.0f);
  }
  for (size_t i = 0; i < matrices.size(); ++i) {
    BatchMatrix& to = work.matrix[work.count++];
    const Codes<Decoder>& of = matrices[i];
    to.codes = of.codes.data();
    to.scales = of.scales.data();
    to.offsets = of.offsets.data();
    to.row_factors = of.row_factors.empty() ? nullptr : of.row_factors.data();
    to.bias = of.bias.data();
    to.y = y[i].data();
    to.ldy = of.rows + 3;
    to.rows = of.rows;
    to.tiles = (of.rows + 15) / 16;
    to.add = c.add;
  }
  work.levels = table;
  work.unit = 0.02f;
  work.inverse_unit = 1 / work.unit;
  work.groups = cols / c.group;
  work.group_shift = c.group == 128 ? 7 : 8;
  work.offset_groups = c.offsets ? c.k_tiles : 0;
  work.offset_shift = 8;
  work.m = c.m;
  work.vector_blocks = (c.m + Vectors - 1) / Vectors;
  work.k_tiles = c.k_tiles;
  work.planes = c.planes;
  BatchPack pack;
  std::vector<std::byte> packed(static_cast<size_t>(work.vector_blocks * c.k_tiles * c.planes) *
                                batch_stage_bytes(Vectors));
  pack.q = x.q.data();
  pack.x_scales = x.scales.data();
  work.inputs = pack.to = packed.data();
  pack.m = c.m;
  pack.cols = cols;
  pack.planes = c.planes;
  pack.vectors = Vectors;
  pack.order = BatchOperands<Decoder>::kOrder;
  pack_batch(pack, nullptr);

  const LaunchShape shape = divide_batch<Decoder, Vectors, Groups>(work);
  std::vector<float4> parts(static_cast<size_t>(shape.grid.x) * kBatchValues / 4);
  std::vector<int> arrived(static_cast<size_t>(shape.grid.x) * kBatchMostGroups * 4);
  work.parts = parts.data();
  work.arrived = arrived.data();
  for (int again = 0; again < (c.add ? 1 : 2); ++again)
    launch("products", batch_kernel<Decoder, Vectors, Groups>, shape, nullptr, work);

  for (size_t i = 0; i < matrices.size(); ++i) {
    const Codes<Decoder>& of = matrices[i];
    for (int row = 0; row < of.rows; ++row) {
      std::vector<double> w;
      for (int column = 0; column < cols; ++column)
        w.push_back(of.weight(table, work.unit, row, column));
      for (int t = 0; t < c.m; ++t) {
        double sum = of.bias[static_cast<size_t>(row)] + (c.add ? 2 : 0), sizes = 0;
        for (int column = 0; column < cols; ++column) {
          const double p =
              w[static_cast<size_t>(column)] * x.values[static_cast<size_t>(t * cols + column)];
          sum += p, sizes += std::abs(p);
        }
        const double allowed = 1e-6 * (sizes + std::abs(sum));
        ASSERT_NEAR(y[i][static_cast<size_t>(t * (of.rows + 3) + row)], sum, allowed)
            << "matrix " << i << " row " << row << " vector " << t << " of " << Vectors << " x "
            << Groups;
      }
    }
    for (int t = 0; t < c.m; ++t)
      for (int row = of.rows; row < of.rows + 3; ++row)
        ASSERT_EQ(y[i][static_cast<size_t>(t * (of.rows + 3) + row)], 2.0f);
  }
}

class BatchKernels : public testing::Test {
 protected:
  void SetUp() override { emulated::multiprocessors = 3; }
  void TearDown() override { emulated::multiprocessors = 132; }
};

// Tests blocks of results that are split, that blocks have alone, and both, of one matrix or
// several.
TEST_F(BatchKernels, ShareBlocksOfResults) {
  expect_products<ScalarDecoder<3>, 32, 2>({.rows = {100}, .k_tiles = 3});
  expect_products<ScalarDecoder<3>, 32, 2>({.rows = {128, 40, 130}, .k_tiles = 2, .m = 17});
  expect_products<ScalarDecoder<3>, 32, 2>({.rows = {600}, .k_tiles = 1, .add = true});
  expect_products<ScalarDecoder<3>, 32, 1>({.rows = {300}, .k_tiles = 5, .m = 50, .add = true});
}

// There are more parts than are added up at once, and not a multiple of those.
TEST_F(BatchKernels, AddUpManyParts) {
  emulated::multiprocessors = 11;
  expect_products<ScalarDecoder<3>, 32, 1>({.rows = {100}, .k_tiles = 5, .add = true});
  expect_products<ScalarDecoder<3>, 64, 1>({.rows = {60}, .k_tiles = 10, .m = 40});
}

TEST_F(BatchKernels, ReadEveryKindOfCodes) {
  expect_products<ScalarDecoder<2>, 32, 1>({.rows = {70}, .offsets = true});
  expect_products<ScalarDecoder<4>, 32, 1>({.rows = {70}, .group = 256, .offsets = true});
  expect_products<TrellisDecoder<4>, 32, 1>({.rows = {70}, .group = 256});
  expect_products<TrellisDecoder<5>, 32, 1>({.rows = {70}, .group = 256});
  expect_products<TrellisDecoder<8>, 32, 1>({.rows = {70}});
}

TEST_F(BatchKernels, HaveEveryNumberOfVectors) {
  expect_products<ScalarDecoder<3>, 64, 3>({.rows = {200}, .m = 61});
  expect_products<ScalarDecoder<3>, 96, 3>({.rows = {30}, .k_tiles = 4, .m = 90});
  expect_products<ScalarDecoder<3>, 128, 2>({.rows = {50}, .m = 201, .add = true});
  expect_products<ScalarDecoder<3>, 32, 1>({.rows = {40}, .m = 33, .planes = 2});
}

}  // namespace
}  // namespace walsh::cuda::detail
