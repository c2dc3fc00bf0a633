// The kernels that expand latent attention to heads, run on the host (emulated/device.h).
#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {
namespace {

struct Heads {
  int heads, head_dim, rope_dim, value_dim;
};

class LatentKernels : public testing::TestWithParam<Heads> {
 protected:
  static constexpr int64_t kRows = 3;

  static std::vector<float> numbers(int64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<float>(random.below(1000)) - 500);
    return values;
  }
};

TEST_P(LatentKernels, GiveEveryHeadWhatIsItsOwn) {
  const Heads shape = GetParam();
  const int64_t width = int64_t{shape.heads} * shape.head_dim, ld = width + 8;
  const int own = shape.head_dim - shape.rope_dim;
  const auto key = numbers(kRows * ld, 1), value = numbers(kRows * ld, 2),
             shared = numbers(kRows * shape.rope_dim, 3);
  auto keys = key, values = value;
  spread_heads({keys.data(), values.data(), shared.data(), ld, kRows, shape.heads, shape.head_dim,
                shape.rope_dim, shape.value_dim},
               nullptr);
  auto expected_keys = key, expected_values = value;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t head = i / shape.head_dim, at = i % shape.head_dim;
      const auto to = static_cast<size_t>(row * ld + i);
      expected_keys[to] =
          at < shape.rope_dim
              ? shared[static_cast<size_t>(row * shape.rope_dim + at)]
              : key[static_cast<size_t>(row * ld + head * own + at - shape.rope_dim)];
      expected_values[to] = at < shape.value_dim
                                ? value[static_cast<size_t>(row * ld + head * shape.value_dim + at)]
                                : 0;
    }
  }
  EXPECT_EQ(keys, expected_keys);
  EXPECT_EQ(values, expected_values);
}

TEST_P(LatentKernels, CloseTheValuesOfHeads) {
  const Heads shape = GetParam();
  const int64_t width = int64_t{shape.heads} * shape.head_dim, ld = width + 4;
  const auto before = numbers(kRows * ld, 4);
  auto rows = before;
  close_values(rows.data(), ld, kRows, shape.heads, shape.head_dim, shape.value_dim, nullptr);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < int64_t{shape.heads} * shape.value_dim; ++i) {
      const int64_t from = i / shape.value_dim * shape.head_dim + i % shape.value_dim;
      ASSERT_EQ(rows[static_cast<size_t>(row * ld + i)],
                before[static_cast<size_t>(row * ld + from)])
          << row << " " << i;
    }
  }
}

// Less than a piece, several pieces, and values as long as keys.
INSTANTIATE_TEST_SUITE_P(Shapes, LatentKernels,
                         testing::Values(Heads{3, 24, 8, 16}, Heads{16, 192, 64, 128},
                                         Heads{9, 128, 32, 128}));

}  // namespace
}  // namespace walsh::cuda
