// Tests the additional work of the blocks of the down product, run on the host (emulated/device.h):
// they make their inputs and add up the results of a row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/dynamic_shared.cuh"
#include "kernels/cuda/experts/expert_inputs.cuh"
#include "kernels/cuda/experts/expert_product.h"
#include "kernels/cuda/experts/expert_sum.cuh"
#include "kernels/cuda/gemv_data.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

constexpr int kTestWarps = 4;

struct InputsCase {
  int64_t width;
  int slots, planes, group, block;  // block 0: not rotated
  bool clamped;
  int scale_columns;
  bool zeros = false;  // of trellis codes, for which one vector stands doubled

  bool doubled() const { return zeros && scale_columns == 1; }
};

struct ImageCall {
  InputView in;
  FormView form;
  GateClamp clamp;
  int first_slot, slots;
  int k_tiles, first_k_tile, scale_columns;
  bool doubled;
  bool zeros;
  std::byte* out;
};

__global__ void image_kernel(ImageCall call) {
  WALSH_DYNAMIC_SHARED(std::byte, memory);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int vectors = call.slots * call.form.planes;
  const InputImage image{memory, vectors, call.scale_columns, kTestWarps, call.doubled, call.zeros};
  const int bytes = image.k_tile_bytes(call.form.group);
  make_slot_inputs({call.in, call.form, call.clamp, call.first_slot, call.slots},
                   {image, bytes, call.first_k_tile, call.k_tiles}, warp, lane);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < call.k_tiles * bytes; i += kTestWarps * 32)
    call.out[i] = memory[i];
}

// Returns where byte b of vector n of a k-tile stands, once or twice.
std::vector<int> places_of(const InputsCase& c, int vectors, int n, int b) {
  const int piece = b / 16;
  if (!c.doubled()) return {(piece / 8 * vectors + n) * 128 + (piece % 8 ^ (n & 1)) * 16 + b % 16};
  const int pair = doubled_place(b / 8) + b % 8 / 2 * 4 + b % 2;
  return {pair, pair + 2};
}

void expect_inputs(const InputsCase& c) {
  SCOPED_TRACE(testing::Message() << c.slots << " slots of " << c.width << ", block " << c.block);
  constexpr int kFirst = 2;  // slot of the item
  const int64_t rows = kFirst + c.slots, padded = divide_up(c.width, 32) * 32;
  const int64_t cols = divide_up(c.width, kPaddedColumns) * kPaddedColumns;
  auto gate = random_values(rows * c.width, 60, 4), up = random_values(rows * c.width, 61, 4);
  const GateClamp clamp{c.clamped, 1.7f, 3.0f};
  Activations prepared(rows, cols, c.group, c.planes);
  InputSource source{gate.data(), up.data(), nullptr, 0, c.width, c.width};
  InputForm form;
  form.rotation = c.block == 0 ? Rotation{.kind = RotationKind::none} : Rotation{.block = c.block};
  form.padded = padded;
  form.out = &prepared;
  // Launches do the clamp, then the preparation.
  auto clamped_gate = gate, clamped_up = up;
  InputSource clamped = source;
  clamped.x = clamped_gate.data();
  clamped.up = clamped_up.data();
  if (c.clamped)
    clamp_gates(clamped_gate.data(), clamped_up.data(), rows * c.width, clamp, nullptr);
  prepare(clamped, {&form, 1}, rows, nullptr);

  const int k_tiles = static_cast<int>(cols / kKTileColumns);
  const int first_k_tile = k_tiles > 2 ? 1 : 0, count = k_tiles - first_k_tile;
  const int vectors = c.slots * c.planes, groups = kKTileColumns / c.group;
  const int q_bytes = vectors * kKTileColumns * (c.doubled() ? 2 : 1);
  const int bytes = q_bytes + c.scale_columns * groups * 8;
  std::vector<std::byte> image(static_cast<size_t>(count * bytes));
  launch("image", image_kernel,
         {dim3(1), dim3(kTestWarps * 32), static_cast<size_t>(count * bytes)}, nullptr,
         ImageCall{input_view(source), form_view(source, form, rows), clamp, kFirst, c.slots, count,
                   first_k_tile, c.scale_columns, c.doubled(), c.zeros, image.data()});
  for (int k = 0; k < count; ++k) {
    const std::byte* k_tile = image.data() + k * bytes;
    for (int n = 0; n < vectors; ++n) {
      const int64_t vector = kFirst * c.planes + n;
      const int8_t* q =
          prepared.q.as<int8_t>() + vector * cols + (first_k_tile + k) * kKTileColumns;
      for (int b = 0; b < kKTileColumns; ++b) {
        for (const int place : places_of(c, vectors, n, b))
          ASSERT_EQ(static_cast<int8_t>(k_tile[place]), q[b]) << "k-tile " << k << " byte " << b;
      }
      for (int g = 0; g < groups; ++g) {
        const auto at =
            static_cast<size_t>(vector * (cols / c.group) + (first_k_tile + k) * groups + g);
        float scale[2];
        std::memcpy(scale, k_tile + q_bytes + (g * c.scale_columns + n) * 8, 8);
        ASSERT_EQ(scale[0], prepared.scales.as<float>()[at]);
        const int32_t sum = prepared.sums.as<int32_t>()[at];
        const float second = c.zeros ? zero_member(sum) : static_cast<float>(sum) * scale[0];
        ASSERT_EQ(__float_as_int(scale[1]), __float_as_int(second));
      }
    }
    for (int g = 0; g < groups; ++g) {
      for (int n = vectors; n < c.scale_columns; ++n) {
        float scale[2];
        std::memcpy(scale, k_tile + q_bytes + (g * c.scale_columns + n) * 8, 8);
        ASSERT_EQ(scale[0], 0) << n;
        ASSERT_EQ(scale[1], 0) << n;
      }
    }
  }
}

TEST(ExpertTail, BlocksMakeTheInputsOfPreparation) {
  for (const InputsCase& c :
       {InputsCase{768, 1, 1, 128, 256, false, 1}, InputsCase{768, 3, 1, 128, 128, false, 8},
        InputsCase{520, 8, 2, 128, 64, false, 16}, InputsCase{96, 2, 1, 32, 0, false, 8},
        InputsCase{301, 1, 2, 32, 0, true, 8}, InputsCase{1100, 5, 1, 128, 128, true, 8},
        InputsCase{768, 1, 1, 128, 256, false, 1, true},
        InputsCase{520, 1, 1, 128, 128, true, 1, true},
        InputsCase{300, 1, 1, 32, 0, false, 1, true},
        InputsCase{768, 3, 1, 128, 128, false, 8, true}})
    expect_inputs(c);
  Random random(59);
  for (int round = 0; round < 8; ++round) {
    InputsCase c{};
    c.width = static_cast<int64_t>(1 + random.below(900));
    c.slots = 1 + static_cast<int>(random.below(8));
    c.planes = 1 + static_cast<int>(random.below(2));
    c.block = random.below(3) == 0 ? 0 : 32 << random.below(4);
    c.group = c.block == 0 ? 32 : 128;
    c.clamped = random.below(2) == 0;
    c.scale_columns = c.slots * c.planes <= 8 ? 8 : 16;
    expect_inputs(c);
  }
}

TEST(ExpertTail, BlocksMakeInputsWhoseSegmentsLieInAKTile) {
  InputForm form;
  Activations out;
  form.out = &out;
  for (const int block : {32, 128, 256, 512, 1024}) {
    form.rotation = Rotation{.block = block};
    EXPECT_EQ(can_make_inputs({&form, 1}), block <= 256) << block;
  }
  form.rotation.kind = RotationKind::none;
  EXPECT_TRUE(can_make_inputs({&form, 1}));
  form.out = nullptr;
  EXPECT_FALSE(can_make_inputs({&form, 1}));
}

constexpr ExpertTiles kShared{7, 2};

struct ProductCall {
  const ExpertItem* items;
  const float* values;  // [slots][width], what the product gives
  float* results;
  int64_t width;
  SumByBlocks sum;
};

// The grid's x counts units of tiles, y pairs of items, which are the work of one block.
__global__ void product_kernel(ProductCall call) {
  WALSH_DYNAMIC_SHARED(SummedPart, complete);
  ExpertWork work[2];
  int works = 0;
  const ExpertPart part = part_of(
      share_of(1, kShared, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)), kShared, 0);
  const int64_t begin = part.first_tile(kShared) * kTileRows;
  const int64_t end = begin + part.tile_count(kShared) * kTileRows;
  const int64_t most = end < call.width ? end : call.width;
  for (unsigned i = 2 * blockIdx.y; i < 2 * blockIdx.y + 2; ++i) {
    const ExpertItem item = call.items[i];
    if (item.count == 0) continue;
    work[works++] = {item, part.first_tile(kShared), part.tile_count(kShared), part};
    for (int s = item.first; s < item.first + item.count; ++s)
      for (int64_t column = begin + threadIdx.x; column < most; column += blockDim.x)
        call.results[s * call.width + column] = call.values[s * call.width + column];
  }
  sum_behind_last(call.sum, kShared, work, works, complete);
}

TEST(ExpertTail, TheLastBlockAddsUpAsALaunchOfItsOwn) {
  constexpr int64_t kExperts = 10, kChosen = 4, kWidth = 100;
  Random random(9);
  for (const int64_t m : {1, 2, 4, 5, 16, 40}) {
    for (const bool to_stream : {false, true}) {
      SCOPED_TRACE(testing::Message() << m << " rows, " << to_stream);
      const ExpertPlan plan = plan_experts(m, kChosen, kExperts, false);
      const auto slots = static_cast<size_t>(m * kChosen);
      std::vector<int32_t> choices(slots), row(slots), slot(slots);
      std::vector<float> weights(slots);
      std::vector<ExpertItem> items(static_cast<size_t>(plan.places(m * kChosen, kExperts)));
      RouteCall route_call;
      route_call.rule.experts = kExperts;
      route_call.rule.chosen = kChosen;
      const auto logits = random_values(m * kExperts, 70 + static_cast<uint64_t>(m));
      route_call.logits = logits.data();
      route_call.m = m;
      route_call.choices = choices.data();
      route_call.weights = weights.data();
      route(route_call, plan, {row.data(), slot.data(), items.data()}, nullptr);

      const auto values = random_values(m * kChosen * kWidth, 71), share = random_values(m, 72),
                 before = random_values(m * kWidth, 73);
      std::vector<float> results(values.size(), std::numeric_limits<float>::quiet_NaN());
      items.resize(items.size() + items.size() % 2);
      std::vector<int32_t> arrived(static_cast<size_t>(m * kShared.units()));
      ExpertSum sum;
      sum.results = results.data();
      sum.slot = slot.data();
      sum.weights = weights.data();
      sum.share = share.data();
      sum.shared = true;
      sum.scale = 0.5f;
      sum.m = m;
      sum.width = kWidth;
      sum.chosen = kChosen;
      auto out = before, stream = before, expected_out = before, expected_stream = before;
      sum.out = out.data();
      if (to_stream) sum.stream = stream.data();
      launch("product", product_kernel,
             {dim3(3, static_cast<unsigned>(items.size() / 2)), dim3(32), 32 * sizeof(SummedPart)},
             nullptr,
             ProductCall{items.data(),
                         values.data(),
                         results.data(),
                         kWidth,
                         {sum, row.data(), arrived.data()}});
      sum.results = values.data();
      sum.out = expected_out.data();
      if (to_stream) sum.stream = expected_stream.data();
      sum_experts(sum, nullptr);
      EXPECT_EQ(bits_of(out), bits_of(expected_out));
      EXPECT_EQ(bits_of(stream), bits_of(expected_stream));
      EXPECT_EQ(arrived, std::vector<int32_t>(arrived.size()));
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
