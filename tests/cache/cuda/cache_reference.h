// Computes attention over a problem of cache_problem.h in double precision, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cache/cuda/cache_problem.h"

namespace walsh::cuda::test {

// Holds rows of a side as doubles: stored ones with the leading positions, then exact ones from
// `first` on.
struct WideRows {
  std::vector<double> values;
  int dim, border, first;

  WideRows(const Problem& p, const HostSide& side, int head)
      : dim(p.c.dim), border(p.c.border()), first(p.first) {
    for (int j = 0; j < border; ++j)
      add(p, side, p.c.window == 0 && j < kLeadingPositions ? Form::leading : Form::stored, head,
          j);
    for (int j = first; j < p.c.end(); ++j)
      add(p, side, Form::exact, head, j);
  }
  void add(const Problem& p, const HostSide& side, Form form, int head, int j) {
    for (int d = 0; d < dim; ++d)
      values.push_back(f16_to_f32(p.at(side, form, head, j, d)));
  }
  const double* row(Form form, int j) const {
    return values.data() + static_cast<int64_t>(form == Form::exact ? border + j - first : j) * dim;
  }
};

// Computes one query; the result is in the rotated domain.
inline std::vector<float> reference(const Case& c, const WideRows& keys, const WideRows& values,
                                    const float* q, float scale, int position) {
  std::vector<double> weights, out(static_cast<size_t>(c.dim));
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int j = 0; j <= position; ++j) {
    const Form form = c.form(position, j);
    double sums[4] = {};
    for (int d = 0; form != Form::none && d < c.dim; ++d)
      sums[d % 4] += double{q[d]} * keys.row(form, j)[d];
    double logit = (sums[0] + sums[1] + sums[2] + sums[3]) * double{scale};
    if (c.cap > 0) logit = double{c.cap} * std::tanh(logit / double{c.cap});
    weights.push_back(form == Form::none ? -std::numeric_limits<double>::infinity() : logit);
    largest = std::max(largest, weights.back());
  }
  for (int j = 0; j <= position; ++j) {
    const Form form = c.form(position, j);
    if (form == Form::none) continue;
    const double weight = std::exp(weights[static_cast<size_t>(j)] - largest);
    total += weight;
    for (int d = 0; d < c.dim; ++d)
      out[static_cast<size_t>(d)] += weight * values.row(form, j)[d];
  }
  std::vector<float> row;
  for (const double v : out)
    row.push_back(static_cast<float>(v / total));
  return row;
}

// Checks the outputs of all rows of a problem; tolerance as in
// tests/kernels/cuda/attention_test.cpp for values below 5 * size.
inline void expect_reference(const Problem& p, const std::vector<float>& out, double size = 1) {
  const Case& c = p.c;
  const Rotation rotation{c.block > 0 ? RotationKind::hadamard : RotationKind::none,
                          std::max(c.block, 32), 42, true};
  const Rotator rotator(rotation, c.dim);
  double worst = 0;
  for (int h = 0; h < c.kv_heads; ++h) {
    const WideRows keys(p, p.keys, h), values(p, p.values, h);
    for (int t = 0; t < c.rows; ++t) {
      for (int g = h * c.group; g < (h + 1) * c.group; ++g) {
        std::vector<float> row =
            reference(c, keys, values, p.q.data() + t * p.ldq + g * c.dim, p.scale, c.position + t);
        rotator.invert(row.data());
        for (int d = 0; d < c.dim; ++d) {
          const float v = out[static_cast<size_t>(t * p.ldo + g * c.dim + d)];
          ASSERT_FALSE(std::isnan(v)) << name_of(c) << " row " << t << " head " << g;
          worst = std::max(worst, std::abs(double{v} - double{row[static_cast<size_t>(d)]}));
        }
      }
      for (int64_t d = c.kv_heads * c.group * c.dim; d < p.ldo; ++d)
        ASSERT_EQ(out[static_cast<size_t>(t * p.ldo + d)], kUntouched);
    }
  }
  EXPECT_LT(worst, 2e-3 * size) << name_of(c);
}

inline constexpr int kExact[] = {0, 32, 100}, kWindows[] = {0, 60, 1000};

// Checks with equal weights, and values that are 0 but for one position per column, where they say
// the form in which it is stored, which positions are seen, how, and how often. attend(device)
// gives the rows.
template <typename Attend>
void expect_each_position_once(int rows, const Attend& attend) {
  const auto size = [](Form form) {
    return form == Form::leading ? 256.0f : form == Form::stored ? 512.0f : 1024.0f;
  };
  for (const int dim : {64, 256}) {
    for (int i = 0; i < 9; ++i) {
      Case c{dim};
      c.exact = kExact[i % 3];
      c.window = kWindows[i / 3];
      c.position = i % 2 == 0 ? 170 : 3;
      c.rows = rows;
      c.kept = i % 4 < 2;
      Problem p(c);
      std::fill(p.q.begin(), p.q.end(), 0.0f);
      // Columns are probed in steps of a prime, so that every place within a tile and a unit has
      // its turn.
      const auto probe = [&](int d) { return d < 6 ? d : d * 37 % c.end(); };
      p.set_values([&](Form form, int j, int d) { return probe(d) == j ? size(form) : 0.0f; });
      p.fill_rings();
      const auto out = attend(DeviceProblem(p));
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

// Checks that a query of row 1 and head 0 that is NaN reaches that row and head alone.
template <typename Attend>
void expect_nan_queries_stay(int rows, const Attend& attend) {
  Case c{64, 1, 2};
  c.position = 100;
  c.rows = rows;
  c.key_bits = c.value_bits = 3;
  c.block = 32;
  Problem p(c);
  p.fill_rings();
  const auto clean = attend(DeviceProblem(p));
  p.q[static_cast<size_t>(p.ldq + 3)] = std::numeric_limits<float>::quiet_NaN();
  const auto out = attend(DeviceProblem(p));
  for (size_t i = 0; i < out.size(); ++i) {
    const auto row = i / static_cast<size_t>(p.ldo), column = i % static_cast<size_t>(p.ldo);
    if (row == 1 && column < 64) {
      ASSERT_TRUE(std::isnan(out[i]));
    } else {
      ASSERT_EQ(out[i], clean[i]);
    }
  }
}

}  // namespace walsh::cuda::test
