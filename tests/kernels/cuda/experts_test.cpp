// Tests products of experts on a GPU against the CPU's products, expert by expert: every plan,
// every format, and replayed as a graph.
#include "kernels/cuda/experts/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>

#include "base/cuda/graph.h"
#include "codec/kernels.h"
#include "expert_weights.h"
#include "kernels/cuda/experts/expert_tile.h"

namespace walsh::cuda {
namespace {

// Holds a product of experts with inputs of rows, or of slots.
struct ExpertProduct {
  const ExpertWeights weights;
  const ExpertShape shape;
  const bool by_row;
  const int64_t slots, inputs;
  std::vector<ActivationsI8> x;
  std::vector<Activations> device_x;
  Buffer y;
  Matmul product;

  ExpertProduct(const Format& format, const ExpertShape& wanted, int64_t m, bool of_rows)
      : weights(format, wanted, 1),
        shape(wanted),
        by_row(of_rows),
        slots(m * shape.chosen),
        inputs(by_row ? m : slots),
        y(static_cast<uint64_t>(slots * shape.rows) * sizeof(float)) {
    const int64_t padded = divide_up(shape.cols, 32) * 32;
    for (int pass = 0; pass < format.passes; ++pass) {
      x.push_back(random_inputs(inputs, padded, format.rotation_block ? 128 : 32,
                                format.activation_planes, 7u + static_cast<unsigned>(pass)));
      device_x.push_back(upload(x.back(), inputs));
    }
    for (int pass = 0; pass < format.passes; ++pass) {
      product.pass[pass] = &weights.device[0][static_cast<size_t>(pass)];
      product.input[pass] = &device_x[static_cast<size_t>(pass)];
    }
    product.bias = weights.device_bias[0].as<float>();
    product.y = y.as<float>();
    product.ldy = shape.rows;
  }

  template <typename Multiply>
  std::vector<float> results(const Multiply& multiply) const {
    fill_zero(y.as(), y.bytes(), nullptr);
    multiply();
    return to_host<float>(y);
  }

  // Multiplies every expert by all inputs, of which slots are chosen.
  std::vector<float> on_cpu(const RoutedRows& routed) const {
    std::vector<std::vector<float>> all;
    for (const RandomTensor& of_expert : weights.host) {
      std::vector<float>& rows = all.emplace_back(static_cast<size_t>(inputs * shape.rows));
      for (int pass = 0; pass < of_expert.tensor.format->passes; ++pass) {
        const PanelMatrix panels = pack_panels(of_expert.tensor, pass);
        ops(Isa::ref).matmul_i8({panels, x[static_cast<size_t>(pass)], inputs, rows.data(),
                                 shape.rows, 0, panels.panels(), pass > 0});
      }
    }
    std::vector<float> expected;
    for (int64_t s = 0; s < slots; ++s) {
      const auto e = static_cast<size_t>(routed.expert_of_slot[static_cast<size_t>(s)]);
      const int64_t from = by_row ? routed.row_of_slot[static_cast<size_t>(s)] : s;
      for (int64_t row = 0; row < shape.rows; ++row)
        expected.push_back(all[e][static_cast<size_t>(from * shape.rows + row)] +
                           weights.bias[e][static_cast<size_t>(row)]);
    }
    return expected;
  }
};

void expect_products(const Format& format, const ExpertShape& shape, int64_t m, bool by_row) {
  SCOPED_TRACE(std::string(format.name) + ", " + std::to_string(m) + " rows" +
               (by_row ? "" : ", a row per slot"));
  const ExpertProduct p(format, shape, m, by_row);
  const RoutedRows routed(shape, m, have_tiles(format), 2);
  const auto got = p.results([&] {
    multiply_experts({&p.product, 1}, p.weights.stride, routed.batch(shape, m, by_row), nullptr);
  });
  expect_close(got, p.on_cpu(routed), 1e-5);
}

// Choices that another program made give the tables of route(), whichever integers it has, and
// those of no expert a slot behind all.
TEST(GpuExperts, GroupChoicesThatAreGiven) {
  WALSH_NEED_GPU();
  const int64_t experts = 5, width = 40;
  const int chosen = 2;
  for (const int64_t m : {1, 4, 9, 300}) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < m * chosen; ++i)
      ids.push_back(i % 7 == 3 ? -1 : i % 11 == 5 ? experts : i * i % experts);
    const std::vector<int32_t> narrow(ids.begin(), ids.end());
    const ExpertPlan plan = plan_experts(m, chosen, experts, false);
    const auto count = static_cast<size_t>(m * chosen);
    for (const bool wide : {false, true}) {
      const Buffer given = wide ? to_device(ids) : to_device(narrow);
      const Buffer choices(count * 4), row(count * 4), slot(count * 4);
      const Buffer items(static_cast<uint64_t>(plan.places(m * chosen, experts)) *
                         sizeof(ExpertItem));
      const Buffer zeros = to_device(std::vector<float>(width, 1.0f));
      GivenChoices call;
      call.ids = given.as();
      call.wide = wide;
      call.m = m;
      call.chosen = chosen;
      call.experts = static_cast<int>(experts);
      call.choices = choices.as<int32_t>();
      call.zeros = zeros.as<float>();
      call.width = width;
      group_given(call, plan, {row.as<int32_t>(), slot.as<int32_t>(), items.as<ExpertItem>()},
                  nullptr);
      EXPECT_EQ(to_host<float>(zeros), std::vector<float>(width));
      std::vector<int> found(count, -1);  // the expert that has each slot
      for (const ExpertItem& item : to_host<ExpertItem>(items))
        for (int i = 0; i < item.count; ++i)
          found.at(static_cast<size_t>(item.first + i)) = item.expert;
      const auto slots = to_host<int32_t>(slot), rows = to_host<int32_t>(row);
      for (size_t i = 0; i < count; ++i) {
        if (ids[i] < 0 || ids[i] >= experts) {
          EXPECT_EQ(slots[i], static_cast<int32_t>(count));
          continue;
        }
        const auto own = static_cast<size_t>(slots[i]);
        EXPECT_EQ(found.at(own), ids[i]);
        EXPECT_EQ(rows.at(own), static_cast<int32_t>(i) / chosen);
      }
    }
  }
}

// The numbers of rows are one, few, some, and enough for medium and large tiles.
TEST(GpuExperts, MultiplyAsTheCpuForEveryFormat) {
  WALSH_NEED_GPU();
  for (const Format& format : all_formats()) {
    if (format.dense || !has_kernel(format, Kernel::gpu_products)) continue;
    for (const int64_t m : {1, 3, 9}) {
      expect_products(format, {5, 2, 40, 512}, m, true);
      expect_products(format, {5, 2, 40, 512}, m, false);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(GpuExperts, MultiplyAsTheCpuByTiles) {
  WALSH_NEED_GPU();
  for (const char* name : {"tq2", "tq3", "tq4", "itq3_s", "q8_0", "q4_0", "tq4+4"}) {
    for (const int64_t m : {20, 70, 300}) {
      expect_products(get_format(name), {4, 2, 72, 256}, m, true);
      expect_products(get_format(name), {3, 1, 300, 512}, m, false);
    }
    if (HasFatalFailure()) return;
  }
}

// The last items of experts have as many slots as here, behind whole ones or alone: blocks leave
// out what an item does not have in steps of their own.
constexpr int kSlots[] = {1, 8, 9, 33, 64, 65, 127, 128, 0, 129, 257, 447};

TEST(GpuExperts, MultiplyItemsOfAnyLengthAsTheCpuInTilesOfEveryShape) {
  WALSH_NEED_GPU();
  using detail::TileShape;
  const auto experts = static_cast<int64_t>(std::size(kSlots));
  const int64_t m = std::accumulate(std::begin(kSlots), std::end(kSlots), int64_t{0});
  std::vector<float> scores(static_cast<size_t>(m * experts));
  std::vector<int> left(std::begin(kSlots), std::end(kSlots));
  for (size_t row = 0, e = 0; row < static_cast<size_t>(m); ++row) {
    do {
      e = (e + 1) % left.size();
    } while (left[e] == 0);
    --left[e];
    scores[row * left.size() + e] = 9;
  }
  for (const char* name : {"tq2", "tq3", "tq4", "itq3_s", "q4_0", "tq4+4"}) {
    SCOPED_TRACE(name);
    const ExpertShape shape{experts, 1, 136, name == std::string("tq3") ? 768 : 256};
    const RoutedRows routed(shape, m, true, scores);
    ASSERT_EQ(routed.plan.per_item, kLargeTileSlots);
    const ExpertProduct p(get_format(name), shape, m, true);
    const ExpertBatch batch = routed.batch(shape, m, true);
    const auto by = [&](TileShape tiles) {
      return p.results([&] {
        detail::multiply_experts_by_tiles({&p.product, 1}, p.weights.stride, batch, tiles, nullptr);
      });
    };
    const auto chosen = p.results([&] {
      multiply_experts({&p.product, 1}, p.weights.stride, batch, nullptr);
    });
    const auto expected = p.on_cpu(routed);
    expect_close(chosen, expected, 1e-5);
    // Sums over the columns are in one order, but for the shape that splits them.
    for (const TileShape tiles : {TileShape::group, TileShape::large, TileShape::small})
      EXPECT_EQ(bits_of(by(tiles)), bits_of(chosen)) << static_cast<int>(tiles);
    expect_close(by(TileShape::medium), expected, 1e-5);
    if (HasFatalFailure()) return;
  }
}

// Gate and up are in one launch, and their rows are not a whole number of blocks.
TEST(GpuExperts, MultiplyTwoProductsInOneLaunchAsOneByOne) {
  WALSH_NEED_GPU();
  const ExpertShape shape{3, 2, 200, 512};
  constexpr int64_t kRows = 300;
  const RoutedRows routed(shape, kRows, true, 5);
  const ExpertProduct gate(get_format("tq3"), shape, kRows, true);
  const ExpertProduct up(get_format("tq3"), shape, kRows, true);
  ASSERT_EQ(gate.weights.stride, up.weights.stride);
  const ExpertBatch batch = routed.batch(shape, kRows, true);
  const auto multiply = [&](std::span<const Matmul> products) {
    multiply_experts(products, gate.weights.stride, batch, nullptr);
  };
  const auto expected = bits_of(gate.results([&] { multiply({&gate.product, 1}); }));
  fill_zero(up.y.as(), up.y.bytes(), nullptr);
  const Matmul both[] = {gate.product, up.product};
  EXPECT_EQ(bits_of(gate.results([&] { multiply(both); })), expected);
  EXPECT_EQ(bits_of(to_host<float>(up.y)), expected);
}

TEST(GpuExperts, MultiplyPlainMatricesAsTheCpu) {
  WALSH_NEED_GPU();
  const ExpertShape shape{4, 2, 37, 100};
  for (const int64_t m : {1, 4, 30}) {
    for (const bool by_row : {true, false}) {
      const RoutedRows routed(shape, m, false, 3);
      const int64_t slots = m * shape.chosen, inputs = by_row ? m : slots;
      const auto w = random_values(shape.experts * shape.rows * shape.cols, 4);
      const auto x = random_values(inputs * shape.cols, 5);
      const DenseMatrix matrix{DType::f32, shape.rows, shape.cols, to_device(w)};
      const Buffer device_x = to_device(x);
      const Buffer y(static_cast<uint64_t>(slots * shape.rows) * sizeof(float));
      const DenseMatmul product{&matrix,       device_x.as<float>(), shape.cols, nullptr,
                                y.as<float>(), shape.rows,           false};
      multiply_experts({&product, 1}, shape.rows * shape.cols * 4, routed.batch(shape, m, by_row),
                       nullptr);
      std::vector<float> expected;
      for (int64_t s = 0; s < slots; ++s) {
        const int64_t e = routed.expert_of_slot[static_cast<size_t>(s)];
        const int64_t from = by_row ? routed.row_of_slot[static_cast<size_t>(s)] : s;
        for (int64_t row = 0; row < shape.rows; ++row) {
          double sum = 0;
          for (int64_t c = 0; c < shape.cols; ++c)
            sum += double{w[static_cast<size_t>((e * shape.rows + row) * shape.cols + c)]} *
                   x[static_cast<size_t>(from * shape.cols + c)];
          expected.push_back(static_cast<float>(sum));
        }
      }
      expect_close(to_host<float>(y), expected, 1e-5);
    }
  }
}

TEST(GpuExperts, SumAndClampAsWritten) {
  WALSH_NEED_GPU();
  const ExpertShape shape{6, 3, 1, 1};
  constexpr int64_t kRows = 11, kWidth = 300;
  const RoutedRows routed(shape, kRows, false, 9);
  const auto results = random_values(kRows * shape.chosen * kWidth, 10);
  const auto out = random_values(kRows * kWidth, 11), share = random_values(kRows, 12);
  const auto weights = to_host<float>(routed.weights);
  const Buffer device_results = to_device(results), device_share = to_device(share);
  for (int kind = 0; kind < 3; ++kind) {  // without a shared expert, with one, with a gate
    const Buffer sum = to_device(out);
    ExpertSum call;
    call.results = device_results.as<float>();
    call.slot = routed.slot.as<const int32_t>();
    call.weights = routed.weights.as<const float>();
    call.shared = kind > 0;
    call.share = kind > 1 ? device_share.as<const float>() : nullptr;
    call.out = sum.as<float>();
    call.m = kRows;
    call.width = kWidth;
    call.chosen = static_cast<int>(shape.chosen);
    sum_experts(call, nullptr);
    std::vector<float> expected;
    for (int64_t t = 0; t < kRows; ++t) {
      for (int64_t i = 0; i < kWidth; ++i) {
        float value = kind > 0 ? out[static_cast<size_t>(t * kWidth + i)] : 0.0f;
        if (kind > 1) value *= 1 / (1 + std::exp(-share[static_cast<size_t>(t)]));
        for (int64_t k = 0; k < shape.chosen; ++k) {
          const auto choice = static_cast<size_t>(t * shape.chosen + k);
          value +=
              weights[choice] * results[static_cast<size_t>(routed.slot_of[choice] * kWidth + i)];
        }
        expected.push_back(value);
      }
    }
    expect_close(to_host<float>(sum), expected, 1e-6);
  }
  const std::vector<float> gate{-9, 0.5f, 3, 9}, up{-9, -1, 2, 9};
  const Buffer device_gate = to_device(gate), device_up = to_device(up);
  clamp_gates(device_gate.as<float>(), device_up.as<float>(), 4, {true, 2, 7}, nullptr);
  EXPECT_EQ(to_host<float>(device_gate), (std::vector<float>{-18, 1, 6, 14}));
  EXPECT_EQ(to_host<float>(device_up), (std::vector<float>{-3, 0, 1.5f, 4}));
}

// The choices are others than those that were recorded.
TEST(GpuExperts, AGraphFollowsTheChoicesOfItsInputs) {
  WALSH_NEED_GPU();
  const ExpertShape shape{6, 2, 48, 256};
  const Format& format = get_format("tq3");
  for (const int64_t m : {2, 16, 100}) {
    const ExpertWeights weights(format, shape, 20);
    RoutedRows routed(shape, m, true, 21);
    const Activations x = upload(random_inputs(m, shape.cols, 128, 1, 22), m);
    const Buffer y(static_cast<uint64_t>(m * shape.chosen * shape.rows) * sizeof(float));
    Matmul product;
    product.pass[0] = &weights.device[0][0];
    product.input[0] = &x;
    product.y = y.as<float>();
    product.ldy = shape.rows;
    RouteCall call;
    call.rule.experts = static_cast<int>(shape.experts);
    call.rule.chosen = static_cast<int>(shape.chosen);
    call.logits = routed.logits.as<float>();
    call.m = m;
    call.choices = routed.choices.as<int32_t>();
    call.weights = routed.weights.as<float>();
    const OwnedStream stream;
    const auto step = [&] {
      route(call, routed.plan,
            {routed.row.as<int32_t>(), routed.slot.as<int32_t>(), routed.items.as<ExpertItem>()},
            stream.get());
      multiply_experts({&product, 1}, weights.stride, routed.batch(shape, m, true), stream.get());
    };
    step();
    stream.synchronize();
    const Graph graph = Graph::record(stream.get(), step);
    for (uint64_t seed = 30; seed < 33; ++seed) {
      const auto logits = random_values(m * shape.experts, seed);
      copy_to_device(routed.logits.as(), logits.data(), routed.logits.bytes(), stream.get());
      step();
      stream.synchronize();
      const auto direct = bits_of(to_host<float>(y));
      fill_zero(y.as(), y.bytes(), stream.get());
      graph.launch(stream.get());
      stream.synchronize();
      ASSERT_EQ(bits_of(to_host<float>(y)), direct) << m;
    }
  }
}

}  // namespace
}  // namespace walsh::cuda
