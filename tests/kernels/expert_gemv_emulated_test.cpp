// Products of experts with trellis codes, run on the host (emulated/device.h): a single vector is
// stored doubled in shared memory, whether blocks load their inputs or make them.
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

// Codes of any bits and scales, expert by expert at one distance.
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
  Activations prepared = Activations(kSlots, int64_t{kKTiles} * kKTileColumns, 128, 1);
  InputSource source;
  InputForm form;

  Inputs() {
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
  args.m = args.vectors = count;
  args.table.words[0] = 0x9E3779B1u;  // the multiplier
  args.scale_vectors = 2;
  args.scale_step = 32;
  args.scale_tile = kKTiles * kTileRows * 2;
  args.scale_shift = 3;
  args.q = inputs.prepared.q.template as<int8_t>();
  args.x_scales = inputs.prepared.scales.template as<float>();
  args.x_sums = inputs.prepared.sums.template as<int32_t>();
  args.tiles_per_block = kTiles / 2;
  args.blocks_with_more = kTiles % 2;
  args.stride = codes.kStride;
  return args;
}

// The results of `args` by the kernel of experts, for two items of `count` slots.
template <typename Decoder, int Tiles8>
std::vector<float> multiply(ExpertGemvArgs args, int count) {
  std::vector<float> y(int64_t{kSlots} * kRows, -1);
  const std::vector<ExpertItem> items{{2, 0, count, 0}, {0, kFirst, count, 0}, {1, 0, 0, 0}};
  args.set[0].y = y.data();
  args.items = items.data();
  using Block = GemvBlock<Decoder, 128, Tiles8, ExpertInputLoader, true>;
  const int bytes = Block::kMemory.ring_bytes() + Block::kMemory.sum_bytes +
                    kKTiles * input_bytes(count, Tiles8, 128, Block::KTile::kDoubled);
  launch("experts", expert_gemv_of<Decoder, 128, Tiles8>,
         {dim3(2, static_cast<unsigned>(items.size())), dim3(Block::kWarps * 32),
          static_cast<size_t>(bytes)},
         nullptr, args);
  return y;
}

// One expert's rows with the kernel of ordinary products.
template <typename Decoder, int Tiles8>
void multiply_plain(const ExpertGemvArgs& args, int expert, int first, int count,
                    std::vector<float>& y) {
  GemvArgs own = args;
  const int64_t bytes = expert * args.stride;
  own.set[0].codes += bytes / static_cast<int64_t>(sizeof(uint4));
  own.set[0].scales += bytes;
  own.set[0].y = y.data() + int64_t{first} * kRows;
  own.q += int64_t{first} * kKTiles * kKTileColumns;
  own.x_scales += int64_t{first} * kKTiles * 2;
  own.x_sums += int64_t{first} * kKTiles * 2;
  using Block = GemvBlock<Decoder, 128, Tiles8>;
  const int shared = Block::kMemory.ring_bytes() + Block::kMemory.sum_bytes +
                     kKTiles * input_bytes(count, Tiles8, 128, Block::KTile::kDoubled);
  launch("product", gemv_kernel_of<Decoder, 128, Tiles8>,
         {dim3(2), dim3(Block::kWarps * 32), static_cast<size_t>(shared)}, nullptr, own);
}

template <typename Decoder, int Tiles8>
void expect_products(int count) {
  SCOPED_TRACE(testing::Message() << count << " slots");
  const ExpertCodes<Decoder> codes;
  const Inputs inputs;
  std::vector<float> expected(int64_t{kSlots} * kRows, -1);
  ExpertGemvArgs args = args_of(codes, inputs, count, expected);
  multiply_plain<Decoder, Tiles8>(args, 2, 0, count, expected);
  multiply_plain<Decoder, Tiles8>(args, 0, kFirst, count, expected);
  EXPECT_EQ((multiply<Decoder, Tiles8>(args, count)), expected) << "brought";
  args.makes_inputs = true;
  args.in = input_view(inputs.source);
  args.form = form_view(inputs.source, inputs.form, kSlots);
  args.q = nullptr;
  EXPECT_EQ((multiply<Decoder, Tiles8>(args, count)), expected) << "made";
}

TEST(ExpertProducts, OfTrellisCodesAreThoseOfOtherProducts) {
  expect_products<TrellisDecoder<6>, 0>(1);
  expect_products<TrellisDecoder<5>, 0>(1);
  expect_products<TrellisDecoder<6>, 1>(2);
}

}  // namespace
}  // namespace walsh::cuda
