// The forward pass against transformers (float32, eager attention); tools/make_goldens.py writes
// the expectations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model_support.h"

namespace walsh {
namespace {

constexpr double kTolerance = 1e-3;  // of the largest logit of the row

struct Golden {
  std::vector<int32_t> tokens, greedy;
  std::vector<size_t> positions, ids;
  std::vector<std::vector<double>> logits;
  std::vector<double> max_abs, logsumexp;
};

Golden read_golden(const std::string& name) {
  const auto json = nlohmann::json::parse(
      test::read_file(std::string(WALSH_TEST_DATA) + "/goldens/" + name + ".json"));
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

double log_sum_exp(const std::vector<float>& logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float v : logits)
    sum += std::exp(v - max);
  return max + std::log(sum);
}

void expect_logits(const Golden& golden, const std::vector<std::vector<float>>& rows) {
  ASSERT_EQ(rows.size(), golden.tokens.size());
  double worst = 0;
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    const auto& row = rows[golden.positions[p]];
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      worst =
          std::max(worst, std::abs(row[golden.ids[i]] - golden.logits[p][i]) / golden.max_abs[p]);
    }
    EXPECT_NEAR(log_sum_exp(row), golden.logsumexp[p], kTolerance * golden.max_abs[p]);
  }
  EXPECT_LT(worst, kTolerance);
  testing::Test::RecordProperty("worst", std::to_string(worst));
}

std::vector<int32_t> continue_greedily(Session& session, std::span<const float> last,
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

struct Case {
  const char* model;
  const char* isa;
  int threads;
};

class GoldenTest : public testing::TestWithParam<Case> {
 protected:
  void TearDown() override { force_isa(""); }
};

TEST_P(GoldenTest, LogitsAndGreedyTextEqualTransformers) {
  const Case& param = GetParam();
  const auto isas = supported_isas();
  if (std::none_of(isas.begin(), isas.end(), [&](Isa i) { return isa_name(i) == param.isa; })) {
    GTEST_SKIP() << "this machine has no " << param.isa;
  }
  const std::string folder = test::model_folder(param.model);
  if (folder.empty()) GTEST_SKIP() << param.model << " is not here (WALSH_SHARED names the folder)";
  force_isa(param.isa);
  ThreadPool pool(param.threads);
  const Model model = test::load_folder(folder, pool);
  const Golden golden = read_golden(param.model);
  Session session(model, {256});
  const auto rows = test::all_logits(session, golden.tokens);
  expect_logits(golden, rows);
  EXPECT_EQ(continue_greedily(session, rows.back(), golden.greedy.size()), golden.greedy);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const char* model :
       {"qwen2-tiny", "qwen2-window-tiny", "mistral-tiny", "llama31-tiny", "llama2-bias-tiny",
        "qwen3-tiny", "gemma2-tiny", "gemma2-wide-tiny", "gemma2-plain-tiny", "phi3-tiny",
        "phi3-partial-tiny", "phi3-long-tiny"}) {
    for (const char* isa : {"ref", "avx2", "avx512", "avx512vbmi"})
      list.push_back({model, isa, isa[0] == 'r' ? 1 : 2});
  }
  for (const char* model : {"walsh-tiny-13m", "walsh-ref-27m", "walsh-qwen3-16m"}) {
    for (const char* isa : {"avx2", "avx512"})
      list.push_back({model, isa, 2});
  }
  return list;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = std::string(info.param.model) + "_" + info.param.isa;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace walsh
