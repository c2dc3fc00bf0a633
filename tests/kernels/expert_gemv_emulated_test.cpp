// Products of experts, run on the host (emulated/device.h): the results of ordinary products,
// however blocks share the tiles of all items, and whether they load their inputs or make them. A
// single vector is stored doubled in shared memory for trellis codes.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/experts/expert_gemv.cuh"
#include "kernels/cuda/gemv_data.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

constexpr int kExperts = 3, kRows = 40, kTiles = 3, kWidth = 600, kKTiles = 3;
constexpr int kSlots = 5;  // the second item has those from 2 on
constexpr int kFirst = 2;

// Holds codes of any bits and scales, expert by expert at one distance.
template <typename Decoder>
struct ExpertCodes {
  static constexpr int64_t kCodes = int64_t{kTiles} * kKTiles * Decoder::kWords * 128;
  static constexpr int64_t kScales = int64_t{kTiles} * kKTiles * kTileRows * 2;
  static constexpr int64_t kStride = kCodes + kScales;
  std::vector<uint4> memory = std::vector<uint4>(kExperts * kStride / sizeof(uint4));

  ExpertCodes() {
    Random random(17);
    auto* bytes = reinterpret_cast<std::byte*>(memory.data());
    for (int e = 0; e < kExperts; ++e, bytes += kStride) {
      for (int64_t i = 0; i < kCodes; ++i)
        bytes[i] = static_cast<std::byte>(random.next() & 255);
      for (int64_t i = 0; i < kScales; i += 2) {
        const uint16_t scale = f32_to_f16(static_cast<float>(0.01 + random.uniform()));
        std::memcpy(bytes + kCodes + i, &scale, 2);
      }
    }
  }
};

struct Inputs {
  std::vector<float> gate = random_values(int64_t{kSlots} * kWidth, 60, 4);
  std::vector<float> up = random_values(int64_t{kSlots} * kWidth, 61, 4);
  Activations prepared;
  InputSource source;
  InputForm form;

  explicit Inputs(int planes) : prepared(kSlots, int64_t{kKTiles} * kKTileColumns, 128, planes) {
    source.x = gate.data();
    source.up = up.data();
    source.ldx = source.width = kWidth;
    form.rotation = Rotation{.block = 128};
    form.padded = 608;
    form.out = &prepared;
    prepare(source, {&form, 1}, kSlots, nullptr);
  }
};

template <typename Decoder>
ExpertGemvArgs args_of(const ExpertCodes<Decoder>& codes, const Inputs& inputs, int count,
                       std::vector<float>& y) {
  ExpertGemvArgs args;
  for (TileSet& set : args.set)
    set.first_tile = INT32_MAX;
  TileSet& set = args.set[0];
  set.first_tile = 0;
  set.codes = codes.memory.data();
  set.scales = reinterpret_cast<const std::byte*>(codes.memory.data()) + codes.kCodes;
  set.y = y.data();
  set.ldy = set.rows = kRows;
  args.tiles = kTiles;
  args.k_tiles = args.slice_k_tiles = kKTiles;
  args.m = count;
  args.planes = inputs.prepared.planes;
  args.vectors = count * args.planes;
  args.table.words[0] = 0x9E3779B1u;  // the multiplier
  args.scale_vectors = 2;
  args.scale_step = 32;
  args.scale_tile = kKTiles * kTileRows * 2;
  args.scale_shift = 3;
  args.q = inputs.prepared.q.template as<int8_t>();
  args.x_scales = inputs.prepared.scales.template as<float>();
  args.x_sums = inputs.prepared.sums.template as<int32_t>();
  args.share.tiles = kTiles;
  args.stride = codes.kStride;
  return args;
}

// Returns two items of `count` slots, and places of items without any.
std::vector<ExpertItem> items_of(int count) {
  return {{1, 0, 0, 0}, {2, 0, count, 0}, {1, 0, 0, 0}, {0, kFirst, count, 0}};
}

// Returns the results of the kernel of experts for `args`, with `blocks` blocks.
template <typename Decoder, int Tiles8>
std::vector<float> multiply(ExpertGemvArgs args, int count, int blocks) {
  std::vector<float> y(int64_t{kSlots} * kRows, -1);
  const std::vector<ExpertItem> items = items_of(count);
  args.set[0].y = y.data();
  args.items = items.data();
  args.places = static_cast<int>(items.size());
  using Block = ExpertBlock<Decoder, 128, Tiles8>;
  const int bytes = Block::kMemory.ring_bytes() + Block::kMemory.sum_bytes +
                    args.input_buffers * args.slice_k_tiles *
                        input_bytes(args.vectors, Tiles8, 128, Block::KTile::kDoubled);
  launch(
      "experts", expert_gemv_of<Decoder, 128, Tiles8>,
      {dim3(static_cast<unsigned>(blocks)), dim3(Block::kWarps * 32), static_cast<size_t>(bytes)},
      nullptr, args);
  return y;
}

// Multiplies some tiles of an item's rows with the kernel of ordinary products.
template <typename Decoder, int Tiles8>
void multiply_plain(const ExpertGemvArgs& args, const ExpertItem& item, int tile, int tiles,
                    std::vector<float>& y) {
  GemvArgs own = args;
  const int64_t bytes = item.expert * args.stride;
  TileSet& set = own.set[0];
  set.codes +=
      bytes / static_cast<int64_t>(sizeof(uint4)) + int64_t{tile} * kKTiles * Decoder::kWords * 8;
  set.scales += bytes + int64_t{tile} * args.scale_tile;
  set.y = y.data() + int64_t{item.first} * kRows + tile * kTileRows;
  set.rows -= tile * kTileRows;
  own.tiles_per_block = tiles;
  const int64_t k_tile = int64_t{item.first} * args.planes * kKTiles;
  own.q += k_tile * kKTileColumns;
  own.x_scales += k_tile * 2;
  own.x_sums += k_tile * 2;
  using Block = GemvBlock<Decoder, 128, Tiles8>;
  const int shared =
      Block::kMemory.ring_bytes() + Block::kMemory.sum_bytes +
      args.slice_k_tiles * input_bytes(args.vectors, Tiles8, 128, Block::KTile::kDoubled);
  launch("product", gemv_kernel_of<Decoder, 128, Tiles8>,
         {dim3(1), dim3(Block::kWarps * 32), static_cast<size_t>(shared)}, nullptr, own);
}

template <typename Decoder, int Tiles8>
std::vector<float> multiply_by_parts(const ExpertGemvArgs& args, int count, int blocks) {
  std::vector<float> y(int64_t{kSlots} * kRows, -1);
  const ExpertItem with_slots[] = {items_of(count)[1], items_of(count)[3]};
  for (int block = 0; block < blocks; ++block) {
    const ExpertShare share = share_of(2, args.share, block, blocks);
    for (int i = 0; i < share.parts(args.share); ++i) {
      const ExpertPart part = part_of(share, args.share, i);
      multiply_plain<Decoder, Tiles8>(args, with_slots[share.first_item(args.share) + i],
                                      part.first_tile(args.share), part.tile_count(args.share), y);
    }
  }
  return y;
}

// One block has all tiles; others begin and end within an item or have none. Inputs have one buffer
// or two, for all columns or for slices of them.
template <typename Decoder, int Tiles8>
void expect_products(int count, int planes = 1) {
  const ExpertCodes<Decoder> codes;
  const Inputs inputs(planes);
  std::vector<float> y(int64_t{kSlots} * kRows, -1);
  for (const int blocks : {1, 2, 4, 7}) {
    ExpertGemvArgs args = args_of(codes, inputs, count, y);
    args.input_buffers = 1 + blocks % 2;
    args.slice_k_tiles = blocks < 3 ? 2 : kKTiles;
    SCOPED_TRACE(testing::Message() << count << " slots, " << blocks << " blocks");
    const auto expected = multiply_by_parts<Decoder, Tiles8>(args, count, blocks);
    EXPECT_EQ((multiply<Decoder, Tiles8>(args, count, blocks)), expected) << "brought";
    args.makes_inputs = true;
    args.in = input_view(inputs.source);
    args.form = form_view(inputs.source, inputs.form, kSlots);
    args.q = nullptr;
    EXPECT_EQ((multiply<Decoder, Tiles8>(args, count, blocks)), expected) << "made";
  }
}

TEST(ExpertProducts, AreThoseOfOtherProductsHoweverBlocksShareThem) {
  expect_products<ScalarDecoder<3>, 1>(2);
  expect_products<ScalarDecoder<3>, 1>(2, 2);
  expect_products<TrellisDecoder<6>, 0>(1);
  expect_products<TrellisDecoder<5>, 0>(1);
  expect_products<TrellisDecoder<6>, 1>(2);
}

// Inputs may have two planes for any code (ActivationMode::i8x2), so an item has more than 8
// vectors.
TEST(ExpertProducts, HaveKernelsForTwoPlanesOfAllSlotsOfAnItem) {
  using Decoder = ScalarDecoder<2>;
  GemvKind kind{Decoder::kKind, 128};
  kind.experts = true;
  kind.tiles8 = tiles_of_8(kind.decoder, kind.flush, 2 * kVectorSlots);
  const ExpertGemvKernel expected = expert_gemv_of<Decoder, 128, 2>;
  EXPECT_EQ(expert_gemv_kernel<Decoder>(kind), expected);
}

}  // namespace
}  // namespace walsh::cuda
