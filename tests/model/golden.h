// Reads expected values of transformers (float32, eager attention), written by
// tools/make_goldens.py.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "model/model_support.h"

namespace walsh::test {

inline constexpr double kTolerance = 1e-3;  // of the largest logit of the row

struct Golden {
  std::vector<int32_t> tokens, greedy;
  std::vector<size_t> positions, ids;
  std::vector<std::vector<double>> logits;
  std::vector<double> max_abs, logsumexp;
};

// Returns the tiny checkpoints, by name.
inline std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(WALSH_TEST_DATA) + "/models"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline Golden read_golden(const std::string& name) {
  const auto json =
      nlohmann::json::parse(read_file(std::string(WALSH_TEST_DATA) + "/goldens/" + name + ".json"));
  Golden g;
  json.at("tokens").get_to(g.tokens);
  json.at("greedy").get_to(g.greedy);
  json.at("positions").get_to(g.positions);
  json.at("ids").get_to(g.ids);
  json.at("logits").get_to(g.logits);
  json.at("max_abs").get_to(g.max_abs);
  json.at("logsumexp").get_to(g.logsumexp);
  return g;
}

inline double log_sum_exp(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float v : logits)
    sum += std::exp(v - max);
  return max + std::log(sum);
}

inline void expect_logits(const Golden& golden, const std::vector<std::vector<float>>& rows,
                          double tolerance = kTolerance) {
  ASSERT_EQ(rows.size(), golden.tokens.size());
  double worst = 0;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    const auto& row = rows[golden.positions[p]];
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      worst =
          std::max(worst, std::abs(row[golden.ids[i]] - golden.logits[p][i]) / golden.max_abs[p]);
    }
    EXPECT_NEAR(log_sum_exp(row), golden.logsumexp[p], tolerance * golden.max_abs[p]);
  }
  EXPECT_LT(worst, tolerance);
  testing::Test::RecordProperty("worst", std::to_string(worst));
}

// Checks prompts whose inputs are rounded to 16 bits: half of the rows must be close, and no row
// may match another text. Some rows are further away, because rounding chooses another expert where
// scores are nearly equal, or persists in a recurrent state.
inline void expect_rounded_logits(const Golden& golden, const std::vector<std::vector<float>>& rows,
                                  double close, double far) {
  ASSERT_EQ(rows.size(), golden.tokens.size());
  std::vector<double> worst;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    double& of_row = worst.emplace_back(0);
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      const double difference = rows[golden.positions[p]][golden.ids[i]] - golden.logits[p][i];
      of_row = std::max(of_row, std::abs(difference) / golden.max_abs[p]);
    }
  }
  std::sort(worst.begin(), worst.end());
  EXPECT_LT(worst[worst.size() / 2], close);
  EXPECT_LT(worst.back(), far);
}

inline std::vector<int32_t> continue_greedily(Session& session, std::span<const float> last,
                                              size_t count) {
  std::vector<int32_t> tokens;
  const auto take = [&](std::span<const float> logits) {
    const auto best = std::max_element(logits.begin(), logits.end());
    tokens.push_back(static_cast<int32_t>(best - logits.begin()));
  };
  take(last);
  while (tokens.size() < count) {
    const int32_t token = tokens.back();
    session.forward({&token, 1}, [&](int64_t, std::span<const float> logits) { take(logits); });
  }
  return tokens;
}

}  // namespace walsh::test
