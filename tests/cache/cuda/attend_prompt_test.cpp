#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cache/cuda/cache_reference.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::Case;
using test::DeviceProblem;
using test::Form;
using test::kBits;
using test::kSequence;
using test::kUntouched;
using test::name_of;
using test::Problem;

void expect_reference(const Case& c, uint64_t seed = 1) {
  const Problem p(c, seed);
  const DeviceProblem device(p);
  device.load();
  test::expect_reference(p, device.attend());
}

class GpuCodedPrompt : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

constexpr int kPositions[] = {0, 5, 31, 40, 200, 1000}, kRows[] = {1, 17, 64, 130, 300};
constexpr int kExact[] = {0, 32, 100}, kWindows[] = {0, 60, 1000}, kGroups[] = {1, 4, 8};

TEST_F(GpuCodedPrompt, IsTheReferenceForEveryHeadSize) {
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

TEST_F(GpuCodedPrompt, IsTheReferenceForEveryPlace) {
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

// Equal weights, and values that are 0 but for one position per column, where they say the form in
// which it is stored: which positions are seen, how, and how often.
TEST_F(GpuCodedPrompt, SeesEveryVisiblePositionOnce) {
  const auto size = [](Form form) {
    return form == Form::sink ? 256.0f : form == Form::stored ? 512.0f : 1024.0f;
  };
  for (const int dim : {64, 256}) {
    for (const int i : {0, 1, 2, 3, 4, 5, 6, 7, 8}) {
      Case c{dim};
      c.exact = kExact[i % 3];
      c.window = kWindows[i / 3];
      c.position = i % 2 == 0 ? 170 : 3;
      c.rows = 210;
      c.kept = i % 4 < 2;
      Problem p(c);
      std::fill(p.q.begin(), p.q.end(), 0.0f);
      // In steps of a prime, so that every place within a tile and a unit has its turn.
      const auto probe = [&](int d) { return d < 6 ? d : d * 37 % c.end(); };
      p.set_values([&](Form form, int j, int d) { return probe(d) == j ? size(form) : 0.0f; });
      const DeviceProblem device(p);
      device.load();
      const auto out = device.attend();
      for (int t = 0; t < c.rows; ++t) {
        const int at = c.position + t;
        const int64_t seen = c.window > 0 ? std::min<int64_t>(c.window, at + 1) : at + 1;
        for (int d = 0; d < c.dim; ++d) {
          const Form form = c.form(at, probe(d));
          const double expected = form == Form::none ? 0 : size(form) / static_cast<double>(seen);
          ASSERT_NEAR(out[static_cast<size_t>(t * p.ldo + d)], expected, 1e-5 * expected)
              << name_of(c) << " row " << t << " position " << probe(d);
        }
      }
    }
  }
}

TEST_F(GpuCodedPrompt, NanQueriesStayInTheirRow) {
  Case c{64, 1, 2};
  c.position = 100;
  c.rows = 70;
  c.key_bits = c.value_bits = 3;
  c.block = 32;
  Problem p(c);
  const auto run = [&] {
    const DeviceProblem device(p);
    device.load();
    return device.attend();
  };
  const auto clean = run();
  p.q[static_cast<size_t>(p.ldq + 3)] = std::numeric_limits<float>::quiet_NaN();  // row 1, head 0
  const auto out = run();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto row = i / static_cast<size_t>(p.ldo), column = i % static_cast<size_t>(p.ldo);
    if (row == 1 && column < 64) {
      ASSERT_TRUE(std::isnan(out[i]));
    } else {
      ASSERT_EQ(out[i], clean[i]);
    }
  }
}

TEST_F(GpuCodedPrompt, RefusesShapesThatItCannotRead) {
  Case c{64, 2, 1};
  Problem p(c);
  DeviceProblem device(p);
  device.view.head_dim = 96;
  EXPECT_THROW(device.attend(), Error);
  EXPECT_THROW(load_units(device.view, {kSequence, 0, 1}, device.old, nullptr), Error);
  device.view.head_dim = 64;
  device.view.kv_heads = 3;
  EXPECT_THROW(device.attend(), Error);
  device.view.kv_heads = 2;
  device.view.values.block = 128;
  EXPECT_THROW(device.attend(), Error);
  device.view.values.block = 0;
  p.ldq += 1;
  EXPECT_THROW(device.attend(), Error);
}

}  // namespace
}  // namespace walsh::cuda
