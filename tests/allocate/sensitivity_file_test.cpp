#include "allocate/sensitivity_file.h"

#include <gtest/gtest.h>

#include "allocate/tiny_model.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kConditions = "text 1";

std::string file(const std::string& tensors) {
  return R"({"walsh_sensitivity": 1, "conditions": "text 1", "tensors": [)" + tensors + "]}";
}

std::string tensor(const std::string& nmse, const std::string& damage) {
  return R"({"tensor": "a", "nmse": [)" + nmse + R"(], "damage": [)" + damage + "]}";
}

void expect_refused(const std::string& text, const std::string& part) {
  try {
    parse_curves(text, "s.json", kConditions);
    FAIL() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::bad_input);
    EXPECT_TRUE(e.where().starts_with("s.json")) << e.where();
    EXPECT_NE((e.where() + e.reason()).find(part), std::string::npos) << e.what();
  }
}

TEST(SensitivityFile, ComesBackAsItWasWritten) {
  const test::TinyModel tiny;
  ThreadPool pool(1);
  const Candidates candidates(tiny.opener(pool), test::recipe_of("tq3"),
                              test::formats({"tq2", "tq3"}), false);
  Sensitivity written;
  for (size_t t = 0; t < candidates.tensors().size(); ++t) {
    const double size = 1.0 / 3 + static_cast<double>(t);
    written.curves.push_back({{0.03, 0.1}, {kLeastDamage * (1 + size), size}, t % 2 == 0 ? 2 : 1});
  }
  const std::string text = format_sensitivity(candidates, written, kConditions);
  const Sensitivity read = parse_sensitivity(text, "s.json", candidates, kConditions);
  ASSERT_EQ(read.curves.size(), written.curves.size());
  for (size_t t = 0; t < read.curves.size(); ++t) {
    EXPECT_EQ(read.curves[t].points, written.curves[t].points);
    for (int i = 0; i < read.curves[t].points; ++i) {
      EXPECT_EQ(read.curves[t].nmse[i], written.curves[t].nmse[i]);
      EXPECT_EQ(read.curves[t].damage[i], written.curves[t].damage[i]);
    }
    EXPECT_EQ(read.damage[t].size(), 2u);
  }
  EXPECT_THROW(parse_sensitivity(file(tensor("0.1", "1")), "s.json", candidates, kConditions),
               Error)
      << "the model's tensors are missing";
}

TEST(SensitivityFile, RefusesWhatIsNoSensitivity) {
  EXPECT_EQ(parse_curves(file(tensor("0.1", "1")), "s.json", kConditions).size(), 1u);
  expect_refused("[]", "an array");
  expect_refused("{", "JSON");
  expect_refused(R"({"walsh_sensitivity": 2})", "walsh_sensitivity");
  expect_refused(R"({"walsh_sensitivity": 1, "conditions": "text 2", "tensors": []})", "text 2");
  expect_refused(file("1"), "object");
  expect_refused(file(tensor("0.1", "1") + "," + tensor("0.1", "1")), "twice");
}

TEST(SensitivityFile, RefusesCurvesThatPredictNothing) {
  for (const auto& [nmse, damage] :
       std::initializer_list<std::pair<const char*, const char*>>{{"", ""},
                                                                  {"0.1", ""},
                                                                  {"0.1, 0.2, 0.3", "1, 2, 3"},
                                                                  {"0.1", "\"1\""},
                                                                  {"0.1", "0"},
                                                                  {"0.1", "-1"},
                                                                  {"0.1", "1e300"},
                                                                  {"1e-300", "1"},
                                                                  {"1", "1"},
                                                                  {"0.2, 0.1", "1, 2"}}) {
    expect_refused(file(tensor(nmse, damage)), "'nmse' from 1e-09 to 1");
  }
}

}  // namespace
}  // namespace walsh
