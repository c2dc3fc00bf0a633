// Tests the forward pass against transformers (float32, eager attention); tools/make_goldens.py
// writes the expected values.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "arch/family.h"
#include "model/golden.h"

namespace walsh {
namespace {

struct Case {
  std::string model;
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
  const test::Golden golden = test::read_golden(param.model);
  const auto positions = static_cast<int64_t>(golden.tokens.size() + golden.greedy.size());
  Session session(model, {std::max<int64_t>(256, positions)});
  const auto rows = test::all_logits(session, golden.tokens);
  test::expect_logits(golden, rows);
  EXPECT_EQ(test::continue_greedily(session, rows.back(), golden.greedy.size()), golden.greedy);
}

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const std::string& model : test::tiny_models()) {
    for (const char* isa : {"ref", "avx2", "avx512", "avx512vbmi", "amx"})
      list.push_back({model, isa, std::string(isa) == "avx2" ? 2 : 1});
  }
  for (const char* model : {"walsh-tiny-13m", "walsh-ref-27m", "walsh-qwen3-16m", "walsh-moe-20m",
                            "walsh-qwen35-17m"}) {
    for (const char* isa : {"avx2", "avx512"})
      list.push_back({model, isa, 1});
  }
  return list;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.model + "_" + info.param.isa;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST(Goldens, EveryFamilyHasThree) {
  std::map<std::string, int> found;
  for (const std::string& model : test::tiny_models())
    ++found[test::read_config(test::tiny_model(model)).family];
  for (const Family& family : families())
    EXPECT_GE(found[std::string(family.model_type)], 3) << family.model_type;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace walsh
