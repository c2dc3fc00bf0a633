// Tests the delta rule in chunks, and the additive rule, against their definition, one update of
// the state per row, in double.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/ops.h"

namespace walsh {
namespace {

struct Rows {
  DeltaShape shape;
  int64_t count;
  std::vector<float> q, k, v, log_decay, strength, skip;

  Rows(const DeltaShape& s, int64_t rows, uint64_t seed) : shape(s), count(rows) {
    Random random(seed);
    const auto fill = [&](std::vector<float>& to, int64_t width, auto&& value) {
      for (int64_t i = 0; i < rows * width; ++i)
        to.push_back(static_cast<float>(value(random)));
    };
    const double length = std::sqrt(static_cast<double>(s.key_dim));
    const auto normal = [&](Random& r) { return r.normal() / length; };
    fill(q, ld(), normal);
    fill(k, ld(), normal);
    fill(v, ld(), [](Random& r) { return r.normal(); });
    // States range from such that live for ever to such that are forgotten at once.
    fill(log_decay, s.values, [](Random& r) { return -std::exp(3 * r.normal() - 3); });
    fill(strength, s.values, [](Random& r) { return r.uniform(); });
    for (int64_t h = 0; h < s.values; ++h)
      skip.push_back(s.additive ? static_cast<float>(random.normal()) : 0.0F);
  }
  int64_t ld() const { return std::max(shape.key_dim, shape.values * shape.value_dim); }
};

std::vector<double> by_definition(const Rows& rows) {
  const DeltaShape& s = rows.shape;
  std::vector<double> out;
  std::vector<double> states(static_cast<size_t>(s.values * s.key_dim * s.value_dim));
  for (int64_t t = 0; t < rows.count; ++t) {
    const float *q = &rows.q[static_cast<size_t>(t * rows.ld())],
                *k = &rows.k[static_cast<size_t>(t * rows.ld())];
    for (int64_t h = 0; h < s.values; ++h) {
      double* state = &states[static_cast<size_t>(h * s.key_dim * s.value_dim)];
      const auto gate = static_cast<size_t>(t * s.values + h);
      const double decay = std::exp(static_cast<double>(rows.log_decay[gate]));
      for (int64_t c = 0; c < s.value_dim; ++c) {
        double seen = 0, result = 0;
        for (int64_t d = 0; d < s.key_dim; ++d) {
          state[d * s.value_dim + c] *= decay;
          seen += state[d * s.value_dim + c] * static_cast<double>(k[d]);
        }
        const double v = rows.v[static_cast<size_t>(t * rows.ld() + h * s.value_dim + c)];
        const double change =
            static_cast<double>(rows.strength[gate]) * (s.additive ? v : v - seen);
        for (int64_t d = 0; d < s.key_dim; ++d) {
          state[d * s.value_dim + c] += static_cast<double>(k[d]) * change;
          result += state[d * s.value_dim + c] * static_cast<double>(q[d]);
        }
        out.push_back(result + static_cast<double>(rows.skip[static_cast<size_t>(h)]) * v);
      }
    }
  }
  return out;
}

// Computes in pieces of at most `piece` rows.
std::vector<float> in_chunks(const Ops& ops, const Rows& rows, int64_t piece) {
  const DeltaShape& s = rows.shape;
  std::vector<float> memory(static_cast<size_t>(DeltaState::floats(s)));
  std::vector<float> scratch(static_cast<size_t>(delta_rule_scratch(s)), std::nanf(""));
  std::vector<float> out(static_cast<size_t>(rows.count * s.values * s.value_dim));
  for (int64_t t = 0; t < rows.count;) {
    const int64_t used = t % kDeltaChunk;
    const int64_t m = std::min({piece, kDeltaChunk - used, rows.count - t});
    DeltaRows part = {};
    part.q = rows.q.data() + t * rows.ld();
    part.k = rows.k.data() + t * rows.ld();
    part.v = rows.v.data() + t * rows.ld();
    part.ld = rows.ld();
    part.log_decay = rows.log_decay.data() + t * s.values;
    part.strength = rows.strength.data() + t * s.values;
    part.ld_decay = part.ld_strength = s.values;
    if (s.additive) part.skip = rows.skip.data();
    part.out = out.data() + t * s.values * s.value_dim;
    part.ld_out = s.values * s.value_dim;
    ops.delta_rule(s, {s, memory.data()}, part, used, m, scratch.data());
    t += m;
  }
  return out;
}

class DeltaRuleTest : public testing::TestWithParam<Isa> {};

TEST_P(DeltaRuleTest, IsTheDefinitionHoweverRowsAreCut) {
  if (!isa_supported(GetParam())) GTEST_SKIP() << "not on this machine";
  const Ops& table = ops(GetParam());
  for (const DeltaShape& shape :
       {DeltaShape{1, 16, 16}, DeltaShape{3, 48, 80}, DeltaShape{2, 128, 128},
        DeltaShape{3, 48, 80, true}, DeltaShape{8, 128, 64, true}}) {
    const Rows rows(shape, 135, static_cast<uint64_t>(shape.key_dim));
    const std::vector<double> expected = by_definition(rows);
    const std::vector<float> found = in_chunks(table, rows, kDeltaChunk);
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 2e-5) << i;
    for (const int64_t piece : {1, 5, 31})
      EXPECT_EQ(in_chunks(table, rows, piece), found) << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, DeltaRuleTest, testing::Values(Isa::ref, Isa::avx2, Isa::avx512),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace walsh
