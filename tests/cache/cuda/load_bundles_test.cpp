#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cache/cuda/cache_problem.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using test::Case;
using test::DeviceProblem;
using test::Form;
using test::HostSide;
using test::kBits;
using test::kSequence;
using test::name_of;
using test::Problem;

class GpuLoadUnits : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().empty()) GTEST_SKIP() << "no CUDA device: " << unavailable_reason();
  }
};

TEST_F(GpuLoadUnits, LoadsWhatIsStored) {
  for (const int dim : {64, 128, 256}) {
    for (const int bits : kBits) {
      for (const int groups : {1, dim / 32}) {
        Case c{dim, 3};
        c.position = 200;
        c.key_bits = bits;
        c.value_bits = kBits[static_cast<size_t>(bits * 2 + groups) % 5];
        c.groups = groups;
        for (const int64_t window : {0, 60}) {  // with and without leading positions
          c.window = window;
          const Problem p(c);
          const DeviceProblem device(p);
          device.load();
          for (const HostSide* side : {&p.keys, &p.values}) {
            const auto rows = device.old_rows(side == &p.keys ? 0 : 1);
            for (int h = 0; h < c.kv_heads; ++h) {
              for (int j = 0; j < p.old_capacity; ++j) {
                const Form form =
                    window == 0 && j < kLeadingPositions ? Form::leading : Form::stored;
                for (int d = 0; d < dim; ++d) {
                  const auto i = static_cast<size_t>((h * p.old_capacity + j) * dim + d);
                  ASSERT_EQ(rows[i], j < c.border() ? p.at(*side, form, h, j, d) : kHalfNan)
                      << name_of(c) << " position " << j << " column " << d;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_F(GpuLoadUnits, LoadsUnitsFromTheMiddle) {
  Case c{128, 2};
  c.position = 300;
  c.key_bits = c.value_bits = 4;
  const Problem p(c);
  DeviceProblem device(p);
  device.old.first = 64;
  load_bundles(device.view, {kSequence, 3, 5}, device.old, nullptr);
  const auto rows = device.old_rows(0);
  for (int j = 64; j < 64 + p.old_capacity; ++j) {
    const auto i = static_cast<size_t>((p.old_capacity + j - 64) * c.dim + 77);
    ASSERT_EQ(rows[i], j >= 96 && j < 160 ? p.stored(p.keys, 1, j, 77) : kHalfNan) << j;
  }
}

TEST_F(GpuLoadUnits, ScalesThatAreNanGiveNan) {
  for (const int bits : {2, 3, 4, 8}) {
    Case c{64, 1};
    c.position = 64;
    c.key_bits = c.value_bits = bits;
    Problem p(c);
    for (HostSide* side : {&p.keys, &p.values}) {
      auto* scales = const_cast<unsigned char*>(p.tile(*side, 0, 0)) + 16 * c.dim * bits / 8;
      const int at = side->keys ? 2 * 5 + 1 : 4 * 2 + 3;  // of position 13
      scales[2 * at] = 0;
      scales[2 * at + 1] = 0x7e;
    }
    const DeviceProblem device(p);
    device.load();
    for (int side = 0; side < 2; ++side) {
      const auto rows = device.old_rows(side);
      for (int i = 0; i < 32 * c.dim; ++i)
        ASSERT_EQ(std::isnan(f16_to_f32(rows[static_cast<size_t>(i)])), i / c.dim == 13) << i;
    }
  }
}

TEST_F(GpuLoadUnits, RestoresUnitsAndCopiesRings) {
  for (const int bits : kBits) {
    Case c{64, 2};
    c.position = 150;
    c.rows = 40;
    c.key_bits = c.value_bits = bits;
    const Problem p(c);
    const DeviceProblem device(p);
    const HostSide* sides[2] = {&p.keys, &p.values};
    restore_bundles(device.view, {kSequence, 0, 1}, nullptr);
    restore_bundles(device.view, {kSequence, 3, 4}, nullptr);  // of 128 rows
    copy_to_ring(device.view, kSequence, 165, 190, device.fresh, nullptr);
    for (int s = 0; s < 2; ++s) {
      std::vector<uint16_t> ring = sides[s]->ring;
      for (int h = 0; h < c.kv_heads; ++h) {
        for (int d = 0; d < c.dim; ++d) {
          for (int j = 0; j < kCacheBundle; ++j) {
            const Form form = j < kLeadingPositions ? Form::leading : Form::stored;
            ring[p.ring_at(h, j, d)] = p.at(*sides[s], form, h, j, d);
            ring[p.ring_at(h, 96 + j, d)] = p.stored(*sides[s], h, 96 + j, d);
          }
          for (int j = 165; j < 190; ++j)
            ring[p.ring_at(h, j, d)] = sides[s]->fresh[p.fresh_at(h, j, d)];
        }
      }
      EXPECT_EQ(device.ring_rows(s), ring) << bits;
    }
  }
}

TEST_F(GpuLoadUnits, CopiesFromRings) {
  Case c{128, 3};
  c.position = 150;
  c.rows = 40;
  const Problem p(c);
  const DeviceProblem device(p);
  copy_from_ring(device.view, kSequence, 130, 171, device.fresh, nullptr);
  for (int s = 0; s < 2; ++s) {
    const HostSide& side = s == 0 ? p.keys : p.values;
    std::vector<uint16_t> fresh = side.fresh;
    for (int h = 0; h < c.kv_heads; ++h)
      for (int j = 130; j < 171; ++j)
        for (int d = 0; d < c.dim; ++d)
          fresh[p.fresh_at(h, j, d)] = side.ring[p.ring_at(h, j, d)];
    EXPECT_EQ(device.fresh_rows(s), fresh);
  }
}

}  // namespace
}  // namespace walsh::cuda
