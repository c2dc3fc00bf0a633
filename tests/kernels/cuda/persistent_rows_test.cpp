// Tests programs of the persistent kernel for several rows against single launches. Attention of
// several rows is tested with models (tests/model/cuda/one_launch_test.cpp) and on the host
// (persistent_rows_emulated_test.cpp).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codec/kernels.h"
#include "step_data.h"

namespace walsh::cuda {
namespace {

// Checks two products of one input, one with a bias, one added to what is there.
void expect_products(const Format& format, int64_t cols, bool norm, int room, int rows) {
  SCOPED_TRACE(testing::Message() << format.name << ' ' << cols << (norm ? " norm " : " gate ")
                                  << rows << " of " << room);
  constexpr int64_t kLong = 2500, kShort = 33;
  const auto a = upload_passes(format, kLong, cols, 1), b = upload_passes(format, kShort, cols, 2);
  const Buffer x = to_device(random_values(room * cols, 3)),
               up = to_device(random_values(room * cols, 4));
  const Buffer gain = to_device(random_values(cols, 5)), bias = to_device(random_values(kLong, 6));
  InputSource source{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, cols, cols};
  if (!norm) {
    source.gain = nullptr;
    source.up = up.as<float>();
  }
  const Forms forms(format, cols, room);
  const auto run = [&](bool whole) {
    const Buffer ya(static_cast<uint64_t>(room) * kLong * 4);
    const Buffer yb = to_device(random_values(room * kShort, 7));
    Matmul products[] = {forms.product(a, ya.as<float>()), forms.product(b, yb.as<float>())};
    products[0].bias = bias.as<float>();
    products[1].add = true;
    if (whole) {
      PersistentProgram program(room);
      EXPECT_TRUE(program.multiply(source, forms.forms, products));
      EXPECT_TRUE(program.finish());
      program.launch(nullptr, rows);
    } else {
      prepare(source, forms.forms, rows, nullptr);
      gemv(products, rows, nullptr);
    }
    auto y = to_host<float>(ya);
    y.resize(static_cast<size_t>(rows * kLong));
    auto rest = to_host<float>(yb);
    rest.resize(static_cast<size_t>(rows * kShort));
    y.insert(y.end(), rest.begin(), rest.end());
    return y;
  };
  expect_close(run(true), run(false), 2e-5);
}

TEST(GpuPersistentRows, MultiplyAsSingleLaunches) {
  WALSH_NEED_STEPS();
  for (const char* name : {"tq2", "tq3", "tq4", "itq3_s"}) {
    for (const int64_t cols : {96, 1376, 4096, 8192, 14336}) {
      for (const bool norm : {true, false}) {
        for (const int rows : {2, 3, 4}) {
          expect_products(get_format(name), cols, norm, rows == 2 ? 2 : 4, rows);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

// The products are those of a feed-forward, again and again: blocks meet differently every time.
TEST(GpuPersistentRows, ResultsAreTheSameEveryTime) {
  WALSH_NEED_STEPS();
  constexpr int64_t kNarrow = 2048;
  const Format& format = get_format("tq3");
  for (const int64_t wide : {int64_t{2560}, int64_t{11008}}) {
    for (const int rows : {2, 4}) {
      SCOPED_TRACE(testing::Message() << wide << ", rows " << rows);
      std::vector<std::vector<Matrix>> weights;
      for (uint64_t i = 0; i < 6; ++i) {
        const bool out = i % 2 == 0;
        weights.push_back(upload_passes(format, out ? wide : kNarrow, out ? kNarrow : wide, i));
      }
      const std::vector<float> start = random_values(rows * kNarrow, 8);
      const Buffer gain = to_device(random_values(kNarrow, 5)), x = to_device(start);
      const Buffer y(static_cast<uint64_t>(rows * wide) * 4);
      const Forms into(format, kNarrow, rows), back(format, wide, rows);
      const InputSource narrow{x.as<float>(), nullptr, gain.as<float>(), 1e-5f, kNarrow, kNarrow};
      const InputSource gated{y.as<float>(), nullptr, nullptr, 0, wide, wide};
      PersistentProgram program(rows);
      for (size_t i = 0; i < weights.size(); ++i) {
        Matmul product = i % 2 == 0 ? into.product(weights[i], y.as<float>())
                                    : back.product(weights[i], x.as<float>());
        product.add = i % 2 == 1;
        ASSERT_TRUE(program.multiply(i % 2 == 0 ? narrow : gated,
                                     i % 2 == 0 ? into.forms : back.forms, {&product, 1}));
      }
      ASSERT_TRUE(program.finish());
      std::vector<float> first;
      for (int run = 0; run < launches(); ++run) {
        copy_to_device(x.as(), start.data(), x.bytes(), nullptr);
        program.launch(nullptr, rows);
        const auto got = to_host<float>(x);
        if (run == 0) first = got;
        ASSERT_EQ(got, first) << "run " << run;
      }
    }
  }
}

TEST(GpuPersistentRows, SayNoToOtherCodesThanOneScalarCodeOfCoarseScales) {
  WALSH_NEED_STEPS();
  const Buffer x = to_device(random_values(2 * 512, 33)), y(2 * 32 * 4);
  const InputSource source{x.as<float>(), nullptr, nullptr, 0, 512, 512};
  const auto says = [&](std::initializer_list<const char*> names) {
    PersistentProgram program(2);
    for (const char* name : names) {
      const auto weights = upload_passes(get_format(name), 32, 512, 31);
      const Forms forms(get_format(name), 512, 2);
      const Matmul product = forms.product(weights, y.as<float>());
      if (!program.multiply(source, forms.forms, {&product, 1})) return false;
    }
    return program.finish();
  };
  EXPECT_TRUE(says({"tq3"}));
  EXPECT_FALSE(says({"q4_0"}));
  EXPECT_FALSE(says({"tq3", "tq4"}));
}

}  // namespace
}  // namespace walsh::cuda
