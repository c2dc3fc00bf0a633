// Tests the kernels of gated delta nets, run on the host (emulated/device.h), against the
// recurrence in double precision. Batches are ragged, and texts are divided at arbitrary positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/delta_norm.h"
//
#include "kernels/emulated/device.h"
//
#include "kernels/cuda/delta/delta.h"

namespace walsh::cuda {
namespace {

std::vector<float> normal_values(int64_t count, Random& random, double size = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(size * random.normal());
  return values;
}

constexpr float kLeastStrength = 0.2f, kMostStrength = 1.5f;  // of additive nets

// Holds a layer: its constants, and what every sequence has read.
struct Net {
  DeltaDims dims;
  std::vector<float> taps, rate, bias, query_scale, key_scale, channel_bias, skip;

  Net(const DeltaDims& d, Random& random)
      : dims(d),
        taps(normal_values(d.taps * d.channels(), random, 0.5)),
        rate(normal_values(d.value_heads, random)),
        bias(normal_values(d.value_heads, random)),
        query_scale(static_cast<size_t>(d.key_dim), 1.0f / static_cast<float>(d.key_dim)),
        key_scale(static_cast<size_t>(d.key_dim), 1.0f / std::sqrt(static_cast<float>(d.key_dim))),
        channel_bias(normal_values(d.additive ? d.channels() : 0, random)),
        skip(normal_values(d.additive ? d.value_heads : 0, random)) {
    for (float& r : rate)
      r = std::exp(r);
  }
};

// Holds a sequence as the specification has it.
struct Text {
  std::vector<std::vector<float>> rows;  // channels of every position
  std::vector<double> state;             // [value_heads][key_dim][value_dim]

  // Computes the convolution of the last row.
  std::vector<double> convolved(const Net& net) const {
    const DeltaDims& d = net.dims;
    std::vector<double> out(static_cast<size_t>(d.channels()));
    for (int c = 0; c < d.channels(); ++c) {
      double sum = d.additive ? net.channel_bias[static_cast<size_t>(c)] : 0;
      for (int t = 0; t < d.taps; ++t) {
        const auto at = static_cast<int64_t>(rows.size()) - d.taps + t;
        if (at < 0) continue;
        sum += double{net.taps[static_cast<size_t>(t * d.channels() + c)]} *
               rows[static_cast<size_t>(at)][static_cast<size_t>(c)];
      }
      out[static_cast<size_t>(c)] = sum / (1 + std::exp(-sum));
    }
    for (int h = 0; h < 2 * d.key_heads && !d.additive; ++h) {
      double squares = 0;
      double* head = out.data() + h * d.key_dim;
      for (int i = 0; i < d.key_dim; ++i)
        squares += head[i] * head[i];
      const double length = std::sqrt(squares + double{kLengthEpsilon});
      for (int i = 0; i < d.key_dim; ++i)
        head[i] /= h < d.key_heads ? length * std::sqrt(d.key_dim) : length;
    }
    return out;
  }

  // Applies the delta rule to the last row, whose decay and strength are those of all heads.
  std::vector<double> step(const Net& net, const std::vector<double>& decay,
                           const std::vector<double>& strength) {
    const DeltaDims& d = net.dims;
    const std::vector<double> x = convolved(net);
    if (state.empty()) state.assign(static_cast<size_t>(d.state_floats()), 0);
    std::vector<double> out(static_cast<size_t>(d.value_width()));
    for (int h = 0; h < d.value_heads; ++h) {
      // Rows of an additive net are in reverse order.
      const double* q =
          x.data() + h / d.group() * d.key_dim + (d.additive ? d.value_width() + d.key_width() : 0);
      const double* k = d.additive ? q - d.key_width() : q + d.key_width();
      const double* v = x.data() + (d.additive ? 0 : 2 * d.key_width()) + h * d.value_dim;
      double* s = state.data() + int64_t{h} * d.key_dim * d.value_dim;
      for (int c = 0; c < d.value_dim; ++c) {
        double seen = 0, result = 0;
        for (int r = 0; r < d.key_dim; ++r)
          seen += k[r] * (s[r * d.value_dim + c] *= decay[static_cast<size_t>(h)]);
        const double u = strength[static_cast<size_t>(h)] * (d.additive ? v[c] : v[c] - seen);
        for (int r = 0; r < d.key_dim; ++r)
          result += q[r] * (s[r * d.value_dim + c] += k[r] * u);
        if (d.additive) result += net.skip[static_cast<size_t>(h)] * v[c];
        out[static_cast<size_t>(h * d.value_dim + c)] = result;
      }
    }
    return out;
  }
};

struct Piece {
  int sequence;
  int rows;
};

// Holds all that the kernels of a layer are given, on the host.
class Device {
 public:
  Device(const Net& net, int slots)
      : net_(net),
        slot_floats_(kept_floats(net.dims.channels(), net.dims.taps) + 3 + net.dims.state_floats()),
        // Earlier content must not matter.
        slots_(static_cast<size_t>(slots * slot_floats_), 1e9f) {}

  // Runs one batch; returns the results of its rows.
  std::vector<float> run(const std::vector<Piece>& runs, std::vector<Text>& texts, Random& random) {
    const DeltaDims& d = net_.dims;
    std::vector<int32_t> positions, sequences;
    std::vector<float> channels, decay, strength;
    for (const Piece& run : runs) {
      const auto first = static_cast<int32_t>(texts[static_cast<size_t>(run.sequence)].rows.size());
      for (int i = 0; i < run.rows; ++i) {
        positions.push_back(first + i);
        sequences.push_back(run.sequence);
      }
    }
    const auto m = static_cast<int64_t>(positions.size());
    channels = normal_values(m * d.channels(), random);
    decay = normal_values(m * d.value_heads, random);
    strength = normal_values(m * d.value_heads, random);
    expect(runs, texts, channels, decay, strength);
    std::vector<float> convolved(channels.size()),
        mixed(static_cast<size_t>(m * d.value_width()), 7.0f);
    ConvolveCall call;
    call.dims = d;
    call.memory = memory();
    call.places = {positions.data(), sequences.data()};
    call.in = channels.data();
    call.out = convolved.data();
    call.decay = decay.data();
    call.strength = strength.data();
    call.taps = net_.taps.data();
    call.rate = net_.rate.data();
    call.bias = net_.bias.data();
    call.query_scale = net_.query_scale.data();
    call.key_scale = net_.key_scale.data();
    if (d.additive) {
      call.channel_bias = net_.channel_bias.data();
      call.skip = net_.skip.data();
      call.least_strength = kLeastStrength;
      call.most_strength = kMostStrength;
    }
    call.m = m;
    convolve(call, nullptr);
    DeltaCall rule{d,
                   memory(),
                   call.places,
                   convolved.data(),
                   decay.data(),
                   strength.data(),
                   mixed.data(),
                   call.skip};
    int64_t first = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const Piece& run = runs[i];
      int64_t end = first + run.rows;
      if (run.rows > 1) {
        keep_convolved(call, end - 1, run.sequence, nullptr);
        // Rows are read in two parts, as at a snapshot.
        const int64_t cut =
            first + static_cast<int64_t>(random.below(static_cast<uint64_t>(run.rows)));
        const int64_t position = positions[static_cast<size_t>(first)];
        delta_rows(rule, {first, cut, 0, run.sequence, position}, nullptr);
        delta_rows(rule, {cut, end, 0, run.sequence, position + cut - first}, nullptr);
      } else {
        for (; i + 1 < runs.size() && runs[i + 1].rows == 1; ++i)
          ++end;
        delta_steps(call, mixed.data(), first, end, nullptr);
      }
      first = end;
    }
    check(mixed);
    return mixed;
  }

  void check_states(const std::vector<Text>& texts) const {
    for (size_t t = 0; t < texts.size(); ++t) {
      const float* state = slots_.data() + static_cast<int64_t>(t) * slot_floats_ + memory_states();
      for (size_t i = 0; i < texts[t].state.size(); ++i)
        ASSERT_NEAR(state[i], texts[t].state[i], 2e-4) << "sequence " << t << " value " << i;
    }
  }

 private:
  int64_t memory_states() const { return kept_floats(net_.dims.channels(), net_.dims.taps) + 3; }
  DeltaMemory memory() { return {slots_.data(), slot_floats_, 0, memory_states()}; }

  void expect(const std::vector<Piece>& runs, std::vector<Text>& texts,
              const std::vector<float>& channels, const std::vector<float>& a,
              const std::vector<float>& b) {
    const DeltaDims& d = net_.dims;
    expected_.clear();
    size_t row = 0;
    for (const Piece& run : runs) {
      Text& text = texts[static_cast<size_t>(run.sequence)];
      for (int i = 0; i < run.rows; ++i, ++row) {
        const float* x = channels.data() + static_cast<int64_t>(row) * d.channels();
        text.rows.emplace_back(x, x + d.channels());
        std::vector<double> decay, strength;
        for (int h = 0; h < d.value_heads; ++h) {
          const size_t at = row * static_cast<size_t>(d.value_heads) + static_cast<size_t>(h);
          const auto head = static_cast<size_t>(h);
          if (d.additive) {
            const double step = std::log1p(std::exp(double{b[at]} + net_.bias[head]));
            strength.push_back(std::clamp(step, double{kLeastStrength}, double{kMostStrength}));
            decay.push_back(std::exp(-net_.rate[head] * strength.back()));
            continue;
          }
          const double softplus = std::log1p(std::exp(double{a[at]} + net_.bias[head]));
          decay.push_back(std::exp(-net_.rate[head] * softplus));
          strength.push_back(1 / (1 + std::exp(-double{b[at]})));
        }
        for (const double v : text.step(net_, decay, strength))
          expected_.push_back(v);
      }
    }
  }

  void check(const std::vector<float>& mixed) const {
    ASSERT_EQ(mixed.size(), expected_.size());
    for (size_t i = 0; i < mixed.size(); ++i)
      ASSERT_NEAR(mixed[i], expected_[i], 2e-4) << i;
  }

  const Net& net_;
  int64_t slot_floats_;
  std::vector<float> slots_;
  std::vector<double> expected_;
};

struct Case {
  DeltaDims dims;
  std::vector<std::vector<Piece>> batches;
};

class DeltaKernels : public testing::TestWithParam<Case> {};

TEST_P(DeltaKernels, FollowTheRecurrence) {
  Random random(4);
  const Net net(GetParam().dims, random);
  std::vector<Text> texts(3);
  Device device(net, 3);
  for (const std::vector<Piece>& batch : GetParam().batches) {
    device.run(batch, texts, random);
    if (HasFatalFailure()) return;
    device.check_states(texts);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, DeltaKernels,
    testing::Values(
        // Single steps follow a prompt; lengths are around the border of a chunk.
        Case{{2, 4, 16, 16, 4}, {{{0, 33}}, {{0, 1}}, {{0, 1}}, {{0, 2}}, {{0, 31}}, {{0, 1}}}},
        // Batches are ragged: single rows beside prompts, new sequences beside old ones.
        Case{{1, 2, 32, 48, 2}, {{{0, 1}}, {{0, 1}, {1, 5}}, {{2, 40}, {0, 1}, {1, 1}}, {{1, 3}}}},
        // There are more taps than rows of a run.
        Case{{2, 2, 48, 16, 16}, {{{0, 2}, {1, 1}}, {{0, 1}, {1, 3}}, {{1, 1}, {0, 20}}}},
        Case{{1, 1, 128, 128, 4}, {{{0, 70}}, {{0, 1}}}},
        Case{{1, 4, 16, 32, 4, true}, {{{0, 33}, {1, 1}}, {{0, 1}, {1, 1}}, {{0, 2}}, {{0, 31}}}},
        Case{{2, 4, 48, 16, 3, true}, {{{0, 1}}, {{0, 1}, {1, 5}}, {{2, 70}, {0, 1}, {1, 1}}}},
        // Rows come alone, from the first position on, for longer than rows are kept.
        Case{{1, 3, 256, 80, 3},
             {{{0, 1}},
              {{0, 1}, {1, 1}},
              {{1, 1}, {0, 1}, {2, 1}},
              {{2, 1}},
              {{2, 1}, {0, 1}},
              {{2, 1}, {1, 1}}}}));

// One launch has rows of many sequences, whose slots are in another order than the rows.
TEST(DeltaKernels, StepsOfManySequencesFollowTheRecurrence) {
  Random random(8);
  const Net net({1, 2, 16, 16, 2}, random);
  for (const int count : {2, 16, 17, 100}) {
    SCOPED_TRACE(count);
    std::vector<Text> texts(static_cast<size_t>(count));
    Device device(net, count);
    std::vector<Piece> runs;
    for (int i = 0; i < count; ++i)
      runs.push_back({count - 1 - i, 1});
    for (int step = 0; step < (count < 100 ? 4 : 2); ++step) {
      device.run(runs, texts, random);
      if (HasFatalFailure()) return;
    }
    device.check_states(texts);
    if (HasFatalFailure()) return;
  }
}

TEST(DeltaKernels, OfAnyShapeFollowTheRecurrence) {
  Random random(9);
  for (int round = 0; round < 6; ++round) {
    DeltaDims d;
    d.key_heads = 1 + static_cast<int>(random.below(2));
    d.value_heads = d.key_heads * (1 + static_cast<int>(random.below(2)));
    d.key_dim = 16 * (1 + static_cast<int>(random.below(9)));
    d.value_dim = 16 * (1 + static_cast<int>(random.below(5)));
    d.taps = 2 + static_cast<int>(random.below(5));
    d.additive = round % 2 == 1;
    SCOPED_TRACE(testing::Message() << d.key_heads << "/" << d.value_heads << " heads of "
                                    << d.key_dim << " and " << d.value_dim << ", " << d.taps);
    const Net net(d, random);
    std::vector<Text> texts(2);
    Device device(net, 2);
    for (int batch = 0; batch < 5; ++batch) {
      const int rows = random.below(3) == 0 ? 1 + static_cast<int>(random.below(9)) : 1;
      device.run({{0, 1}, {1, rows}}, texts, random);
      if (HasFatalFailure()) return;
    }
    device.check_states(texts);
    if (HasFatalFailure()) return;
  }
}

TEST(DeltaKernels, RowsInFrontOfWantedOnesAreNotWritten) {
  Random random(5);
  const DeltaDims d{1, 1, 16, 16, 2};
  const auto channels = normal_values(40 * d.channels(), random);
  const std::vector<float> decay(40, -0.1f), strength(40, 0.5f);
  std::vector<float> slots(
      static_cast<size_t>(kept_floats(d.channels(), d.taps) + d.state_floats()));
  std::vector<float> all(40 * 16), some(40 * 16, 7.0f);
  const std::vector<int32_t> zeros(40);
  DeltaCall call{d,
                 {slots.data(), 0, 0, kept_floats(d.channels(), d.taps)},
                 {zeros.data(), zeros.data()},
                 channels.data(),
                 decay.data(),
                 strength.data(),
                 all.data()};
  delta_rows(call, {0, 40, 0, 0, 0}, nullptr);
  call.out = some.data();
  delta_rows(call, {0, 40, 35, 0, 0}, nullptr);
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(some[i], i < 35 * 16 ? 7.0f : all[i]) << i;
}

}  // namespace
}  // namespace walsh::cuda
