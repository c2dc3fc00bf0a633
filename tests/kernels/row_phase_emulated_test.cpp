// The persistent kernel's phase of attention gives several rows what the formula gives. It runs on
// the host here (emulated/device.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/half.h"
#include "base/random.h"
//
#include "kernels/emulated/row_phase.h"

namespace walsh::cuda {
namespace {

constexpr int kDim = 64, kKvHeads = 2, kPagesEach = 18;
constexpr float kScale = 0.125f;

// Does what exchange_place() of persistent/exchange.cuh does.
size_t place_of(int i) {
  return static_cast<size_t>((i & ~255) | (i & 4) << 5 | (i & 0xf8) >> 1 | (i & 3));
}

float rounded(double value) {
  return f16_to_f32(f32_to_f16(static_cast<float>(value)));
}

// Makes rows at these positions of sequences of their own.
class RowPhase {
 public:
  RowPhase(int room, std::vector<int32_t> positions, int group, int window)
      : room_(room),
        rows_(static_cast<int>(positions.size())),
        heads_(group * kKvHeads),
        window_(window),
        positions_(std::move(positions)) {
    Random random(5);
    for (int row = 0; row < rows_; ++row) {
      sequences_.push_back(rows_ - 1 - row);
      for (int i = 0; i < kPagesEach; ++i)
        pages_.push_back((row * kPagesEach + i) * 7 % (rows_ * kPagesEach));
    }
    const auto cached = static_cast<size_t>(rows_ * kPagesEach * kKvHeads * kPageTokens * kDim);
    keys_.resize(cached);
    values_.resize(cached);
    for (std::vector<uint16_t>* side : {&keys_, &values_})
      for (uint16_t& v : *side)
        v = f32_to_f16(static_cast<float>(random.normal()));
    q_ = tagged(random, heads_ * kDim);
    k_ = tagged(random, kKvHeads * kDim);
    v_ = tagged(random, kKvHeads * kDim);
  }

  void expect_formula(int blocks, int most_splits) {
    const int stride = exchange_stride(heads_ * kDim);
    std::vector<float> out(static_cast<size_t>(room_ * (heads_ * kDim + 8)), 7.0f);
    std::vector<uint32_t> exchanged(static_cast<size_t>(room_ * stride));
    std::vector<float> partials(static_cast<size_t>(room_ * heads_ * most_splits * (kDim + 2)));
    std::vector<int32_t> arrived(static_cast<size_t>(room_ * kKvHeads * 2));
    const std::vector<uint16_t> before = keys_;
    RowPhaseCall call;
    AttentionPhase& a = call.phase;
    a.keys = keys_.data();
    a.values = values_.data();
    a.q = reinterpret_cast<const float*>(q_.data());
    a.k = reinterpret_cast<const float*>(k_.data());
    a.v = reinterpret_cast<const float*>(v_.data());
    a.out = out.data();
    a.ldo = heads_ * kDim + 8;
    a.exchange = reinterpret_cast<float*>(exchanged.data());
    a.partials = partials.data();
    a.arrived = arrived.data();
    a.rule.window = window_;
    a.rule.scale = kScale * kLog2E;
    a.group = heads_ / kKvHeads;
    a.tiles = a.whole_blocks = (a.group + kTileHeads - 1) / kTileHeads;
    a.heads = heads_;
    a.kv_heads = kKvHeads;
    a.head_dim = kDim;
    a.most_splits = most_splits;
    call.places = {positions_.data(), sequences_.data()};
    call.table = {pages_.data(), kPagesEach};
    call.room = room_;
    call.rows = rows_;
    call.bit = 1;
    call.blocks = blocks;
    for (int run = 0; run < 2; ++run) {  // the second one finds its counters as the first one did
      run_rows(call);
      size_t changed = 0;
      for (size_t i = 0; i < keys_.size(); ++i)
        changed += keys_[i] != before[i];
      EXPECT_LE(changed, static_cast<size_t>(rows_ * kKvHeads * kDim));
      for (int row = 0; row < rows_; ++row)
        for (int h = 0; h < heads_; ++h)
          expect_head(row, h, out.data() + row * a.ldo, exchanged.data() + row * stride);
      for (size_t i = static_cast<size_t>(rows_ * a.ldo); i < out.size(); ++i)
        ASSERT_EQ(out[i], 7.0f) << "a row that is not there";
      for (int i = 0; i < room_ * heads_ * kDim; ++i) {  // readers wait for all of them
        const int row = i / (heads_ * kDim), at = i % (heads_ * kDim);
        ASSERT_EQ(exchanged[static_cast<size_t>(row * stride) + place_of(at)] & 1, 1u) << i;
      }
    }
  }

 private:
  std::vector<uint32_t> tagged(Random& random, int width) const {
    std::vector<uint32_t> words(static_cast<size_t>(room_ * exchange_stride(width)));
    for (uint32_t& w : words)
      w = std::bit_cast<uint32_t>(static_cast<float>(random.normal())) | 1;
    return words;
  }
  float value(const std::vector<uint32_t>& of, int width, int row, int i) const {
    const size_t at = static_cast<size_t>(row * exchange_stride(width)) + place_of(i);
    return std::bit_cast<float>(of[at] & ~1u);
  }
  size_t cache_place(int row, int head, int position) const {
    const int32_t sequence = sequences_[static_cast<size_t>(row)];
    const auto page = static_cast<size_t>(
        pages_[static_cast<size_t>(sequence * kPagesEach + position / kPageTokens)]);
    return ((page * kKvHeads + static_cast<size_t>(head)) * kPageTokens +
            static_cast<size_t>(position % kPageTokens)) *
           kDim;
  }

  void expect_head(int row, int head, const float* out, const uint32_t* exchanged) const {
    const int kv = head / (heads_ / kKvHeads), position = positions_[static_cast<size_t>(row)];
    for (int d = 0; d < kDim; ++d) {  // the newest position is in the cache
      const size_t at = cache_place(row, kv, position) + static_cast<size_t>(d);
      ASSERT_EQ(keys_[at], f32_to_f16(value(k_, kKvHeads * kDim, row, kv * kDim + d)));
      ASSERT_EQ(values_[at], f32_to_f16(value(v_, kKvHeads * kDim, row, kv * kDim + d)));
    }
    const int first = window_ > 0 ? std::max(0, position - window_ + 1) : 0;
    std::vector<double> weights, sum(kDim);
    double total = 0;
    for (int p = first; p <= position; ++p) {
      double dot = 0;
      for (int d = 0; d < kDim; ++d)
        dot += double{rounded(value(q_, heads_ * kDim, row, head * kDim + d))} *
               double{f16_to_f32(keys_[cache_place(row, kv, p) + static_cast<size_t>(d)])};
      const double weight = std::exp(dot * double{kScale});
      total += weight;
      for (int d = 0; d < kDim; ++d)
        sum[static_cast<size_t>(d)] +=
            weight * double{f16_to_f32(values_[cache_place(row, kv, p) + static_cast<size_t>(d)])};
    }
    for (int d = 0; d < kDim; ++d) {
      const double expected = sum[static_cast<size_t>(d)] / total;
      ASSERT_NEAR(out[head * kDim + d], expected, 5e-3) << "row " << row << " head " << head;
      const uint32_t word = exchanged[place_of(head * kDim + d)];
      ASSERT_NEAR(std::bit_cast<float>(word & ~1u), out[head * kDim + d], 1e-6);
    }
  }

  const int room_, rows_, heads_, window_;
  const std::vector<int32_t> positions_;
  std::vector<int32_t> sequences_, pages_;
  std::vector<uint16_t> keys_, values_;
  std::vector<uint32_t> q_, k_, v_;
};

TEST(RowPhase, IsTheFormulaForEachRow) {
  RowPhase(2, {300, 5}, 3, 0).expect_formula(6, 2);
  RowPhase(4, {0, 1100, 63, 511}, 4, 0).expect_formula(7, 3);
  RowPhase(4, {700, 64, 257, 16}, 10, 200).expect_formula(5, 1);
}

TEST(RowPhase, LeavesRowsThatAreNotThereAlone) {
  RowPhase(4, {40, 600, 255}, 2, 0).expect_formula(9, 2);
}

}  // namespace
}  // namespace walsh::cuda
