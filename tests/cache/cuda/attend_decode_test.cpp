#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cache/cuda/cache_reference.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::Case;
using test::DeviceProblem;
using test::kBits;
using test::kExact;
using test::kWindows;
using test::Problem;

class GpuCodedDecode : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

void expect_reference(const Case& c, uint64_t seed = 1, int64_t longest = 0) {
  Problem p(c, seed);
  p.fill_rings();
  const DeviceProblem device(p);
  test::expect_reference(p, device.attend_single(std::max<int64_t>(longest, c.end())));
}

constexpr int kPositions[] = {0, 5, 31, 33, 40, 63, 64, 200, 1000, 3000};
constexpr int kGroups[] = {1, 4, 8, 9};

TEST_F(GpuCodedDecode, AreTheReferenceForEveryPairOfCodes) {
  for (const int dim : {64, 128, 256}) {
    for (const int key_bits : kBits) {
      for (const int value_bits : kBits) {
        for (const int groups : {1, dim / 32}) {
          Case c{dim, 2, 4};
          c.position = 500 + 7 * key_bits;
          c.key_bits = key_bits;
          c.value_bits = value_bits;
          c.groups = groups;
          c.value_groups = key_bits < value_bits ? dim / 32 + 1 - groups : groups;  // the other one
          c.block = groups == 1 ? dim : 32;
          expect_reference(c);
        }
      }
    }
  }
}

TEST_F(GpuCodedDecode, AreTheReferenceForEveryPlace) {
  uint64_t i = 0;
  for (const int exact : kExact) {
    for (const int window : kWindows) {
      for (const int position : kPositions) {
        for (const bool kept : {false, true}) {
          Case c{64, 1, kGroups[i % 4]};
          c.exact = exact;
          c.window = window;
          c.position = position;
          c.kept = kept;
          c.key_bits = kBits[i % 5];
          c.value_bits = kBits[i / 5 % 5];
          c.groups = i % 3 == 0 ? 1 : 2;
          c.block = i % 2 == 0 ? 64 : 0;
          ++i;
          expect_reference(c, i, i % 4 == 0 ? 100000 : 0);
        }
      }
    }
  }
}

TEST_F(GpuCodedDecode, AreTheReferenceForEveryBatch) {
  for (const int rows : {2, 5, 16, 30}) {
    for (const int position : {20, 600}) {
      Case c{128, 2, 3};
      c.position = position;
      c.rows = rows;
      c.key_bits = c.value_bits = 3;
      c.groups = 4;
      c.block = 32;
      expect_reference(c);
    }
  }
  Case c{64, 1, 2};
  c.position = 20000;
  c.key_bits = c.value_bits = 4;
  expect_reference(c);
}

// There are so many rows and heads that a warp goes through its ring several times.
TEST_F(GpuCodedDecode, AreTheReferenceInLongParts) {
  for (const int bits : kBits) {
    Case c{64, 8, 1};
    c.position = 2000;
    c.rows = 30;
    c.key_bits = c.value_bits = bits;
    c.groups = 2;
    expect_reference(c);
  }
}

// The offset of the keys is inside the cap.
TEST_F(GpuCodedDecode, AreTheReferenceUnderACap) {
  for (const int dim : {64, 128, 256}) {
    for (const int key_bits : kBits) {
      for (const int window : {0, 90}) {
        for (const float cap : {0.5f, 2.0f, 50.0f}) {
          Case c{dim, 2, 9};
          c.position = 300 + 7 * key_bits;
          c.window = window;
          c.key_bits = key_bits;
          c.value_bits = key_bits == 0 ? 3 : 0;
          c.groups = dim / 32;
          c.block = 32;
          c.cap = cap;
          expect_reference(c);
        }
      }
    }
  }
}

TEST_F(GpuCodedDecode, SeeEveryVisiblePositionOnce) {
  test::expect_each_position_once(
      30, [](const DeviceProblem& device) { return device.attend_single(200); });
}

TEST_F(GpuCodedDecode, NanQueriesStayInTheirRow) {
  test::expect_nan_queries_stay(
      7, [](const DeviceProblem& device) { return device.attend_single(107); });
}

// Positions hidden by a sliding window or replaced by the fp16 first positions may hold anything.
TEST_F(GpuCodedDecode, NanOfHiddenPositionsDoesNotMatter) {
  for (const int window : {0, 20, 90}) {
    for (const int bits : kBits) {
      if (window == 0 && bits == 0) continue;  // weights of 0 times NaN, as the exact ones give
      Case c{64};
      c.position = 250;
      c.window = window;
      c.key_bits = c.value_bits = bits;
      Problem p(c);
      p.fill_rings();
      const int hidden = window == 0 ? 3 : c.position - window;
      for (test::HostSide* side : {&p.keys, &p.values}) {
        if (window == 20) {
          side->ring[p.ring_at(0, hidden, 7)] = kHalfNan;
          continue;
        }
        auto* tile = const_cast<unsigned char*>(p.tile(*side, 0, hidden / kCacheTile));
        const int row = hidden % kCacheTile;
        const int scale =
            side->keys ? row % 8 * 2 + row / 8 : row % 8 / 2 * 4 + row / 8 * 2 + row % 2;
        const int at = bits == 0 ? 2 * (row * c.dim + 7) : 2 * (scale + 4 * c.dim * bits / 4);
        tile[at] = 0;
        tile[at + 1] = 0x7e;
      }
      const DeviceProblem device(p);
      test::expect_reference(p, device.attend_single(c.end()));
    }
  }
}

TEST_F(GpuCodedDecode, LargeScalesOfValuesStayFinite) {
  for (const int bits : {2, 3, 4}) {
    Case c{128, 1, 4};
    c.position = 400;
    c.key_bits = c.value_bits = bits;
    c.groups = 4;
    Problem p(c);
    p.fill_rings();
    for (int tile = 0; tile < c.border() / kCacheTile; ++tile) {  // columns 64 to 96
      auto* scales = const_cast<unsigned char*>(p.tile(p.values, 0, tile)) + 2 * c.dim * bits;
      for (int i = 0; i < kCacheTile; ++i)
        scales[2 * ((i / 4 * 4 + 2) * 4 + i % 4) + 1] = 0x6d;  // 4096 to 6144
    }
    const DeviceProblem device(p);
    test::expect_reference(p, device.attend_single(c.end()), 6144);
  }
}

TEST_F(GpuCodedDecode, RefuseShapesThatTheyCannotRead) {
  Case c{64, 2, 1};
  Problem p(c);
  DeviceProblem device(p);
  device.view.head_dim = 96;
  EXPECT_THROW(device.attend_single(1), Error);
  device.view.head_dim = 64;
  device.view.kv_heads = 3;
  EXPECT_THROW(device.attend_single(1), Error);
  device.view.kv_heads = 2;
  p.ldq += 1;
  EXPECT_THROW(device.attend_single(1), Error);
  p.ldq -= 1;
  p.c.cap = -1;
  EXPECT_THROW(device.attend_single(1), Error);
}

}  // namespace
}  // namespace walsh::cuda
