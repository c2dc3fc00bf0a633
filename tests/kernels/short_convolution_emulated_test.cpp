// Tests the short convolution between two gates, run on the host (emulated/device.h), against its
// definition in double precision. Batches are ragged, and texts are divided at arbitrary positions.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/random.h"
#include "walsh/error.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/delta/delta.h"

namespace walsh::cuda {
namespace {

constexpr int kSequences = 3, kSnapshot = kSequences;  // the last slot is one of a snapshot
constexpr int64_t kRowsAt = 5;                         // in a slot

struct Piece {
  int sequence;
  int rows;
};

std::vector<float> normal_values(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(random.normal());
  return values;
}

// Holds a layer, its slots on the device, and what every sequence has read.
class ShortConvolution {
 public:
  ShortConvolution(int channels, int taps, bool biased)
      : channels_(channels),
        taps_(taps),
        random_(static_cast<uint64_t>(channels + taps)),
        weights_(normal_values(int64_t{taps} * channels, random_)),
        bias_(normal_values(biased ? channels : 0, random_)),
        slot_floats_(kRowsAt + kept_floats(channels, taps)),
        // Earlier content must not matter.
        slots_(static_cast<size_t>((kSequences + 1) * slot_floats_), 1e9f),
        texts_(kSequences) {}

  // Runs one batch and compares every result with the definition.
  void run(const std::vector<Piece>& runs) {
    std::vector<int32_t> positions, sequences;
    for (const Piece& run : runs) {
      const auto first = static_cast<int32_t>(texts_[static_cast<size_t>(run.sequence)].size());
      for (int i = 0; i < run.rows; ++i) {
        positions.push_back(first + i);
        sequences.push_back(run.sequence);
      }
    }
    const auto m = static_cast<int64_t>(positions.size());
    const auto in = normal_values(m * channels_, random_),
               before = normal_values(m * channels_, random_),
               after = normal_values(m * channels_, random_);
    std::vector<float> out(in.size());
    GatedConvolveCall call;
    call.channels = channels_;
    call.taps = taps_;
    call.memory = {slots_.data(), slot_floats_, kRowsAt, slot_floats_};
    call.places = {positions.data(), sequences.data()};
    call.in = in.data();
    call.before = before.data();
    call.after = after.data();
    call.out = out.data();
    call.weights = weights_.data();
    call.bias = bias_.empty() ? nullptr : bias_.data();
    call.m = m;
    convolve(call, nullptr);
    keep(call, runs);
    for (size_t t = 0; t < positions.size(); ++t) {
      auto& now = texts_[static_cast<size_t>(sequences[t])].emplace_back();
      const size_t row = t * static_cast<size_t>(channels_);
      for (size_t c = 0; c < static_cast<size_t>(channels_); ++c)
        now.push_back(in[row + c] * before[row + c]);
      for (size_t c = 0; c < static_cast<size_t>(channels_); ++c) {
        const double expected = after[row + c] * convolved(sequences[t], c);
        ASSERT_NEAR(out[row + c], expected, 1e-4) << "row " << t << " channel " << c;
      }
    }
  }

 private:
  // Keeps the rows of runs of several rows, first for a snapshot at their end.
  static void keep(const GatedConvolveCall& call, const std::vector<Piece>& runs) {
    int64_t end = 0;
    for (const Piece& run : runs) {
      end += run.rows;
      if (run.rows == 1) continue;
      keep_convolved(call, end - 1, kSnapshot, nullptr);
      keep_convolved(call, end - 1, run.sequence, nullptr);
    }
  }

  // Returns the sum of bias and weighted values of the last row of a sequence.
  double convolved(int sequence, size_t channel) const {
    const auto& text = texts_[static_cast<size_t>(sequence)];
    double sum = bias_.empty() ? 0 : double{bias_[channel]};
    for (int back = 0; back < taps_ && back < static_cast<int>(text.size()); ++back) {
      const auto weight = static_cast<size_t>((taps_ - 1 - back) * channels_) + channel;
      sum += double{weights_[weight]} * text[text.size() - 1 - static_cast<size_t>(back)][channel];
    }
    return sum;
  }

  int channels_, taps_;
  Random random_;
  std::vector<float> weights_, bias_;
  int64_t slot_floats_;
  std::vector<float> slots_;
  std::vector<std::vector<std::vector<float>>> texts_;  // gated rows of every position
};

TEST(ShortConvolutionKernel, FollowsTheDefinitionHoweverATextIsCut) {
  for (const bool biased : {false, true}) {
    for (const auto& [channels, taps] : {std::pair{300, 3}, std::pair{32, 2}, std::pair{40, 7}}) {
      SCOPED_TRACE(testing::Message() << channels << " channels, " << taps << " taps");
      ShortConvolution layer(channels, taps, biased);
      layer.run({{0, 5}, {1, 1}});
      layer.run({{1, 1}, {0, 1}});
      layer.run({{2, 9}, {0, 2}, {1, 1}});
      layer.run({{0, 1}});
      layer.run({{2, 1}, {1, 8}});
      layer.run({{1, 1}, {2, 1}, {0, 1}});
    }
  }
}

TEST(ShortConvolutionKernel, RefusesAShapeWithoutChannels) {
  GatedConvolveCall call;
  call.m = 1;
  EXPECT_THROW(convolve(call, nullptr), Error);
}

}  // namespace
}  // namespace walsh::cuda
