#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using CountCommand = CommandTest;
using Json = nlohmann::json;

TEST_F(CountCommand, AFoldedRotationSavesThreeOfFourTransformsPerLayer) {
  const auto rotations = [&](const char* rotate) {
    const CommandResult r = walsh({"bench", model(), "--count", "--quantize", "tq3", "--rotate",
                                   rotate, "--effort", "fast", "-o", "json"});
    EXPECT_EQ(r.status, 0) << r.err;
    const Json rows = Json::parse(r.out);
    EXPECT_EQ(rows.size(), 4u) << "embedding, equal layers, head, model";
    EXPECT_EQ(rows[1]["part"], "layers 0-5, each");
    EXPECT_EQ(rows.back()["part"], "model");
    EXPECT_EQ(rows.back()["rotations"], 6 * rows[1]["rotations"].get<int>());
    return rows[1]["rotations"].get<int>();
  };
  EXPECT_EQ(rotations("input"), 4);
  EXPECT_EQ(rotations("residual"), 1);
}

TEST_F(CountCommand, SingleMatricesNeedNoModel) {
  const CommandResult r =
      walsh({"bench", "--count", "--types", "f16,tq3,pq3", "--shapes", "4096x4096", "-o", "json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["multiplications"], 16777216);
  EXPECT_EQ(rows[1]["lookups"], 16777216);
  EXPECT_EQ(rows[2]["multiplications"], 1048576 + 131072) << "the source counts about 1.18 million";
  EXPECT_EQ(rows[2]["lookups"], 4194304);
  const CommandResult md = walsh({"bench", "--count", "--types", "f16", "--shapes", "4096x4096"});
  EXPECT_NE(md.out.find("16.78 M"), std::string::npos) << md.out;
  expect_error(walsh({"bench", "--count", "--shapes", "7x4"}), 2, "7x4");
}

}  // namespace
}  // namespace walsh
