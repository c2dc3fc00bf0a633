// Tests the front of a block, on GPUs and on the host.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "gemv_data.h"
#include "kernels/cuda/experts/front.h"

namespace walsh::cuda {

struct FrontCase {
  int64_t m, width, rows;  // rows of the first matrix
  bool normed;
};

inline std::vector<FrontCase> front_cases() {
  std::vector<FrontCase> cases = {{1, 520, 36, true}, {4, 301, 20, true}, {5, 640, 17, true}};
  Random random(49);
  for (const int64_t m : {1, 2, 16}) {
    const auto width = static_cast<int64_t>(1 + random.below(700));
    const auto rows = static_cast<int64_t>(2 + random.below(40));
    cases.push_back({m, width, rows, random.below(2) == 0});
  }
  return cases;
}
// These take longer.
inline std::vector<FrontCase> large_front_cases() {
  return {{1, 2048, 128, true}, {16, 2048, 128, true}, {1, 7168, 256, true}, {3, 4096, 512, true}};
}

// Holds four forms of an input, two products, and what they give.
struct Front {
  FrontCase c;
  int64_t padded, cols;
  std::vector<float> x, gain, weights[2], bias;
  Buffer device_x, device_gain, device_weights[2], device_bias, y[2], floats;
  std::vector<Activations> quantized;
  std::vector<InputForm> forms;
  std::vector<FrontProduct> products;
  int64_t first;  // row of the input

  Front(const FrontCase& of, int64_t first_row)
      : c(of),
        padded(divide_up(c.width, 32) * 32),
        cols(divide_up(c.width, kPaddedColumns) * kPaddedColumns),
        x(random_values((first_row + c.m) * c.width, 50, 2)),
        gain(random_values(c.width, 51)),
        bias(random_values(3, 52)),
        device_x(to_device(x)),
        device_gain(to_device(gain)),
        device_bias(to_device(bias)),
        floats(static_cast<uint64_t>(c.m * padded) * sizeof(float)),
        first(first_row) {
    const int64_t rows[2] = {c.rows, 3};
    for (size_t i = 0; i < 2; ++i) {
      weights[i] = random_values(rows[i] * c.width, 53 + i, 0.1);
      device_weights[i] = to_device(weights[i]);
      y[i] = Buffer(static_cast<uint64_t>(c.m * rows[i]) * sizeof(float));
      products.push_back({device_weights[i].as<float>(), i == 0 ? nullptr : device_bias.as<float>(),
                          y[i].as<float>(), rows[i], rows[i]});
    }
    quantized.emplace_back(c.m, cols, 128, 1);
    quantized.emplace_back(c.m, cols, 32, 2);
    quantized.emplace_back(c.m, cols, 128, 2);
    const Rotation rotation[] = {{.block = 256, .seed = 5},
                                 {.kind = RotationKind::none},
                                 {.block = c.m == 5 ? 1024 : 64, .seed = 6}};
    for (size_t i = 0; i < 4; ++i) {
      InputForm& form = forms.emplace_back();
      form.padded = padded;
      form.rotation = i < 3 ? rotation[i] : rotation[1];
      if (i < 3) {
        form.out = &quantized[i];
      } else {
        form.rows = floats.as();
        form.stride = padded;
      }
    }
  }

  InputSource source() const {
    InputSource source;
    source.x = device_x.as<float>() + first * c.width;
    source.ldx = source.width = c.width;
    source.gain = c.normed ? device_gain.as<float>() : nullptr;
    source.eps = 1e-6f;
    return source;
  }
  FrontCall call() const { return {source(), forms, products, nullptr, c.m}; }

  // Returns all that forms have.
  std::vector<uint32_t> made() const {
    std::vector<uint32_t> all = bits_of(to_host<float>(floats));
    for (const Activations& a : quantized) {
      for (const int8_t q : to_host<int8_t>(a.q))
        all.push_back(static_cast<uint32_t>(q));
      for (const int32_t sum : to_host<int32_t>(a.sums))
        all.push_back(static_cast<uint32_t>(sum));
      for (const uint32_t bits : bits_of(to_host<float>(a.scales)))
        all.push_back(bits);
    }
    return all;
  }
};

inline void expect_front_inputs(const FrontCase& c) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.width);
  const Front front(c, 0), prepared(c, 0);
  cuda::front(front.call(), nullptr);
  const std::span<const InputForm> forms(prepared.forms);
  prepare(prepared.source(), forms.first(2), c.m, nullptr);
  prepare(prepared.source(), forms.subspan(2), c.m, nullptr);
  EXPECT_EQ(front.made(), prepared.made());
}

// Checks that results are those of the rows one by one, to the bit.
inline void expect_front_products(const FrontCase& c) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.width);
  const Front all(c, 0);
  FrontCall products = all.call();
  products.forms = {};
  cuda::front(products, nullptr);
  for (size_t i = 0; i < 2; ++i) {
    const int64_t rows = all.products[i].rows;
    std::vector<float> expected;
    for (int64_t t = 0; t < c.m; ++t) {
      const float* x = all.x.data() + t * c.width;
      double squares = 0;
      for (int64_t k = 0; k < c.width; ++k)
        squares += double{x[k]} * x[k];
      const double inverse =
          c.normed ? 1 / std::sqrt(squares / static_cast<double>(c.width) + 1e-6) : 1;
      for (int64_t row = 0; row < rows; ++row) {
        double sum = i == 0 ? 0 : all.bias[static_cast<size_t>(row)];
        for (int64_t k = 0; k < c.width; ++k) {
          const double gain = c.normed ? all.gain[static_cast<size_t>(k)] : 1;
          sum += x[k] * inverse * gain * all.weights[i][static_cast<size_t>(row * c.width + k)];
        }
        expected.push_back(static_cast<float>(sum));
      }
    }
    const auto got = to_host<float>(all.y[i]);
    expect_close(got, expected, 1e-5);
    for (int64_t t = 0; t<c.m; t += c.m> 1 ? c.m - 1 : 1) {
      const Front one({1, c.width, c.rows, c.normed}, t);
      FrontCall call = one.call();
      call.forms = {};
      cuda::front(call, nullptr);
      const auto alone = to_host<float>(one.y[i]);
      const auto begin = got.begin() + t * rows;
      ASSERT_EQ(bits_of({begin, begin + rows}), bits_of(alone)) << "row " << t;
    }
  }
}

// Holds choices of m rows, on the device.
struct FrontChoices {
  ExpertPlan plan;
  Buffer choices, weights, row, slot, items, arrived;
  RouteCall call;

  FrontChoices(const FrontCase& c, const Buffer& logits, int groups)
      : plan(plan_experts(c.m, chosen(c), c.rows, false)) {
    const auto slots = static_cast<uint64_t>(c.m * chosen(c));
    choices = Buffer(slots * sizeof(int32_t), true);
    weights = Buffer(slots * sizeof(float), true);
    row = Buffer(slots * sizeof(int32_t), true);
    slot = Buffer(slots * sizeof(int32_t), true);
    items = Buffer(static_cast<uint64_t>(plan.places(c.m * chosen(c), c.rows)) * sizeof(ExpertItem),
                   true);
    arrived = Buffer(sizeof(int32_t), true);
    call.rule.experts = static_cast<int>(c.rows);
    call.rule.chosen = static_cast<int>(chosen(c));
    call.rule.groups = groups;
    call.rule.groups_chosen = groups > 1 ? 2 : 1;
    call.rule.sigmoid = groups > 1;
    call.logits = logits.as<float>();
    call.m = c.m;
    call.choices = choices.as<int32_t>();
    call.weights = weights.as<float>();
  }
  static int64_t chosen(const FrontCase& c) { return c.rows < 8 ? 2 : 8; }

  SlotArrays slots() const {
    return {row.as<int32_t>(), slot.as<int32_t>(), items.as<ExpertItem>()};
  }
  // Clears everything that a launch writes.
  void forget(Stream stream) const {
    for (const Buffer* part : {&choices, &weights, &row, &slot, &items})
      fill_zero(part->as(), part->bytes(), stream);
  }
  std::vector<int32_t> all() const {
    std::vector<int32_t> values;
    for (const Buffer* part : {&choices, &weights, &row, &slot, &items, &arrived})
      for (const int32_t v : to_host<int32_t>(*part))
        values.push_back(v);
    return values;
  }
};

inline void expect_front_choices(const FrontCase& c) {
  SCOPED_TRACE(testing::Message() << c.m << " rows of " << c.width);
  for (const int groups : {1, 4}) {
    if (c.rows % groups != 0) continue;
    const Front front(c, 0);
    const FrontChoices made(c, front.y[0], groups), expected(c, front.y[0], groups);
    const FrontRoute route_in_front{made.call, made.plan, made.slots(), made.arrived.as<int32_t>()};
    FrontCall call = front.call();
    call.forms = {};
    call.route = &route_in_front;
    cuda::front(call, nullptr);
    route(expected.call, expected.plan, expected.slots(), nullptr);
    ASSERT_EQ(made.all(), expected.all());
    cuda::front(call, nullptr);  // the counter begins again
    ASSERT_EQ(made.all(), expected.all());
  }
}

}  // namespace walsh::cuda
