// Tests attention to a coded cache as a phase of the persistent kernel, run on the host
// (emulated/device.h), against the formula.
#include <gtest/gtest.h>

#include <vector>
//
#include "kernels/emulated/coded_phase.h"
//
#include "cache/cuda/cache_reference.h"

namespace walsh::cuda {
namespace {

using test::Case;
using test::DeviceProblem;
using test::HostSide;
using test::Problem;
using test::to_device;

// Sets levels that are bytes times 1/32, as bytes and as halves, for stored nibbles of any width.
ByteLevels set_levels(HostSide& side) {
  ByteLevels bytes;
  side.levels = {};
  bytes.unit = side.bits == 8 ? 1 : 1.0f / 32;
  const int count = side.bits == 2 ? 4 : side.bits == 3 ? 8 : 16;
  for (int i = 0; i < count; ++i) {
    const int size = 12 + 14 * (i % 8), level = i < count / 2 ? -size : size;
    const uint16_t half = f32_to_f16(static_cast<float>(level) / 32);
    bytes.words[i / 4] |= uint32_t{static_cast<uint8_t>(level)} << (8 * (i % 4));
    side.levels.high[i / 4] |= uint32_t{half} >> 8 << (8 * (i % 4));
    if (i < 8) side.levels.low[i / 4] |= (uint32_t{half} & 255) << (8 * (i % 4));
  }
  return bytes;
}

// Returns a head that the rotation turns into these halves.
std::vector<float> turned_back(const Case& c, const std::vector<uint16_t>& from, size_t first) {
  const Rotation rotation{c.block > 0 ? RotationKind::hadamard : RotationKind::none,
                          std::max(c.block, 32), 42, true};
  std::vector<float> v;
  for (int i = 0; i < c.dim; ++i)
    v.push_back(f16_to_f32(from[first + static_cast<size_t>(i)]));
  Rotator(rotation, c.dim).invert(v.data());
  return v;
}

CodedPhase::Side side_of(const CodedPages& of) {
  return {of.tiles,      of.leading, of.groups,
          of.tile_bytes, of.block,   1 / std::sqrt(static_cast<float>(std::max(of.block, 1)))};
}

struct Split {
  int blocks = 6, most = 3;
};

// Checks that the phase gives what a row sees, and writes its key and value to the ring.
void expect_phase(
    const Case& c, const Split& split, uint64_t seed = 1, double size = 1,
    const std::function<void(Problem&)>& change = [](Problem&) {}) {
  Problem p(c, seed);
  const ByteLevels bytes = set_levels(p.keys);
  p.fill_rings();
  change(p);
  const DeviceProblem device(p);
  const CodedView& view = device.view;
  const Rotation rotation{c.block > 0 ? RotationKind::hadamard : RotationKind::none,
                          std::max(c.block, 32), 42, true};
  const Rotator rotator(rotation, c.dim);
  std::vector<float> queries, newest[2];
  const int heads = c.kv_heads * c.group;
  for (int h = 0; h < heads; ++h) {
    std::vector<float> q(p.q.begin() + h * c.dim, p.q.begin() + (h + 1) * c.dim);
    rotator.invert(q.data());
    queries.insert(queries.end(), q.begin(), q.end());
  }
  for (int h = 0; h < c.kv_heads; ++h) {
    for (int i = 0; i < 2; ++i) {
      const HostSide& side = i == 0 ? p.keys : p.values;
      const auto row = turned_back(c, side.ring, p.ring_at(h, c.position, 0));
      newest[i].insert(newest[i].end(), row.begin(), row.end());
    }
  }
  CodedPhaseCall call;
  AttentionPhase& a = call.phase;
  a.keys = view.keys.ring;
  a.values = view.values.ring;
  for (int h = 0; h < c.kv_heads; ++h) {  // the phase has to write them
    std::fill_n(view.keys.ring + p.ring_at(h, c.position, 0), c.dim, kHalfNan);
    std::fill_n(view.values.ring + p.ring_at(h, c.position, 0), c.dim, kHalfNan);
  }
  const Buffer q = to_device(queries), k = to_device(newest[0]), v = to_device(newest[1]);
  a.q = q.as<float>();
  a.k = k.as<float>();
  a.v = v.as<float>();
  std::vector<float> out(static_cast<size_t>(p.ldo), test::kUntouched);
  const Buffer result = to_device(out);
  const Buffer exchange(static_cast<uint64_t>(heads * c.dim + 256) * 4, true);
  const Buffer partials(static_cast<uint64_t>(heads * split.most * (c.dim + 2)) * 4);
  const Buffer arrived(64 * 4, true);
  a.out = result.as<float>();
  a.exchange = exchange.as<float>();
  a.partials = partials.as<float>();
  a.arrived = arrived.as<int32_t>();
  a.rule.window = static_cast<int>(c.window);
  a.rule.scale = p.scale * kLog2E;
  a.group = c.group;
  a.tiles = a.whole_blocks = (c.group + kTileHeads - 1) / kTileHeads;
  a.heads = heads;
  a.kv_heads = c.kv_heads;
  a.head_dim = c.dim;
  a.most_splits = split.most;
  a.coded.bits = c.key_bits;
  a.coded.ring = view.ring;
  a.coded.window = view.window;
  a.coded.keys = side_of(view.keys);
  a.coded.values = side_of(view.values);
  for (int i = 0; i < c.dim; ++i)
    if (rotation_sign(42, static_cast<uint64_t>(i)) < 0) a.coded.signs[i / 32] |= 1u << (i % 32);
  a.coded.key_offsets = view.key_offsets;
  a.coded.key_levels = bytes;
  a.coded.value_levels = p.values.levels;
  call.position = c.position;
  call.sequence = test::kSequence;
  call.kept = c.kept_positions();
  call.table = {view.pages, view.per_sequence};
  call.blocks = split.blocks;
  for (int run = 0; run < 2; ++run) {  // the second one finds its counters as the first one did
    run_phase(call);
    copy_to_host(out.data(), result.as(), out.size() * sizeof(float), nullptr);
    test::expect_reference(p, out, size);
    for (int h = 0; h < c.kv_heads; ++h) {
      for (int d = 0; d < c.dim; ++d) {
        const size_t at = p.ring_at(h, c.position, d);
        ASSERT_NEAR(f16_to_f32(view.keys.ring[at]), f16_to_f32(p.keys.ring[at]), 2e-3);
        ASSERT_NEAR(f16_to_f32(view.values.ring[at]), f16_to_f32(p.values.ring[at]), 2e-3);
      }
    }
  }
}

Case coded(int dim, int bits, int group, int position) {
  Case c{dim, 1, group};
  c.position = position;
  c.key_bits = c.value_bits = bits;
  c.groups = dim / 32;
  c.block = 32;
  return c;
}

TEST(CodedPhase, IsTheFormulaForEveryCode) {
  for (const int dim : {64, 128}) {
    for (const int bits : {2, 3, 4, 8}) {
      for (const int groups : {1, dim / 32}) {
        Case c = coded(dim, bits, 4, 300 + 7 * bits);
        c.groups = groups;
        c.block = groups == 1 ? dim : bits == 8 ? 0 : 32;
        expect_phase(c, {});
      }
    }
  }
}

TEST(CodedPhase, IsTheFormulaForEveryPlace) {
  int i = 0;
  for (const int exact : test::kExact) {
    for (const int window : test::kWindows) {
      for (const int position : {0, 5, 31, 33, 63, 64, 200, 1000}) {
        Case c = coded(i % 2 == 0 ? 64 : 128, i % 3 + 2, i % 5 == 0 ? 9 : 2, position);
        c.exact = exact;
        c.window = window;
        c.kept = i % 4 < 2;
        ++i;
        expect_phase(c, {5, 1 + i % 4}, static_cast<uint64_t>(i));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// There are so many tiles that a warp has several of each kind.
TEST(CodedPhase, IsTheFormulaInLongParts) {
  Case c = coded(64, 3, 3, 3000);
  c.exact = 700;
  for (const int most : {1, 2})
    expect_phase(c, {2, most});
  c = coded(128, 3, 1, 2500);
  c.kv_heads = 2;
  expect_phase(c, {3, 2});
}

TEST(CodedPhase, StaysFiniteWithLargeScalesOfValues) {
  expect_phase(coded(128, 3, 4, 400), {}, 1, 6144, [](Problem& p) {
    for (int tile = 0; tile < p.c.border() / kCacheTile; ++tile) {  // columns 64 to 96
      auto* scales = const_cast<unsigned char*>(p.tile(p.values, 0, tile)) + 2 * p.c.dim * 3;
      for (int i = 0; i < kCacheTile; ++i)
        scales[2 * ((i / 4 * 4 + 2) * 4 + i % 4) + 1] = 0x6d;  // 4096 to 6144
    }
  });
}

}  // namespace
}  // namespace walsh::cuda
