#include <gtest/gtest.h>

#include <vector>

#include "cache/cuda/cache_reference.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::Case;
using test::DeviceProblem;
using test::kBits;
using test::kExact;
using test::kSequence;
using test::kWindows;
using test::Problem;

void expect_reference(const Case& c, uint64_t seed = 1) {
  const Problem p(c, seed);
  const DeviceProblem device(p);
  device.load();
  test::expect_reference(p, device.attend());
}

class GpuCodedPrefill : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

constexpr int kPositions[] = {0, 5, 31, 40, 200, 1000}, kRows[] = {1, 17, 64, 130, 300};
constexpr int kGroups[] = {1, 4, 8};

TEST_F(GpuCodedPrefill, IsTheReferenceForEveryHeadSize) {
  size_t i = 0;
  for (const int dim : {64, 128, 256}) {
    for (const int position : kPositions) {
      for (const int rows : kRows) {
        Case c{dim, i % 4 == 0 ? 2 : 1, kGroups[i % 3]};
        c.exact = kExact[i / 3 % 3];
        c.window = kWindows[i / 2 % 3];
        c.position = position;
        c.rows = rows;
        c.kept = i % 2 == 1;
        c.key_bits = kBits[i % 5];
        c.value_bits = kBits[i / 2 % 5];
        c.groups = i % 7 < 4 ? dim / 32 : 1;
        c.block = i % 4 == 0 ? 0 : i % 4 == 1 ? 32 : dim;
        expect_reference(c, ++i);
      }
    }
  }
}

TEST_F(GpuCodedPrefill, IsTheReferenceForEveryPlace) {
  for (const int exact : kExact) {
    for (const int window : kWindows) {
      for (const int position : kPositions) {
        for (const int rows : kRows) {
          for (const bool kept : {false, true}) {
            Case c{64};
            c.exact = exact;
            c.window = window;
            c.position = position;
            c.rows = rows;
            c.kept = kept;
            c.block = 64;
            expect_reference(c);
          }
        }
      }
    }
  }
}

TEST_F(GpuCodedPrefill, IsTheReferenceUnderACap) {
  for (const int dim : {64, 128, 256}) {
    for (const int key_bits : kBits) {
      for (const int window : {0, 60}) {
        for (const float cap : {0.5f, 2.0f, 50.0f}) {
          Case c{dim, 1, 4};
          c.position = 200;
          c.rows = 70;
          c.window = window;
          c.key_bits = key_bits;
          c.value_bits = key_bits == 0 ? 3 : 0;
          c.block = dim;
          c.cap = cap;
          expect_reference(c);
        }
      }
    }
  }
}

TEST_F(GpuCodedPrefill, SeesEveryVisiblePositionOnce) {
  test::expect_each_position_once(210, [](const DeviceProblem& device) {
    device.load();
    return device.attend();
  });
}

TEST_F(GpuCodedPrefill, NanQueriesStayInTheirRow) {
  test::expect_nan_queries_stay(70, [](const DeviceProblem& device) {
    device.load();
    return device.attend();
  });
}

TEST_F(GpuCodedPrefill, RefusesShapesThatItCannotRead) {
  Case c{64, 2, 1};
  Problem p(c);
  DeviceProblem device(p);
  device.view.head_dim = 96;
  EXPECT_THROW(device.attend(), Error);
  EXPECT_THROW(load_bundles(device.view, {kSequence, 0, 1}, device.old, nullptr), Error);
  device.view.head_dim = 64;
  device.view.kv_heads = 3;
  EXPECT_THROW(device.attend(), Error);
  device.view.kv_heads = 2;
  device.view.values.block = 128;
  EXPECT_THROW(device.attend(), Error);
  device.view.values.block = 0;
  p.ldq += 1;
  EXPECT_THROW(device.attend(), Error);
  p.ldq -= 1;
  p.c.cap = -1;
  EXPECT_THROW(device.attend(), Error);
}

}  // namespace
}  // namespace walsh::cuda
