#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/command.h"

namespace walsh {
namespace {

using BenchCommand = CommandTest;
using Json = nlohmann::json;

TEST_F(BenchCommand, JsonHasOneRowPerTest) {
  const CommandResult r = walsh({"bench", "--synthetic", "tiny", "--type", "tq4", "-p", "16,32",
                                 "-n", "4", "-r", "2", "-t", "1", "-o", "json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["test"], "pp16");
  EXPECT_EQ(rows[1]["test"], "pp32");
  EXPECT_EQ(rows[2]["test"], "tg4");
  for (const Json& row : rows) {
    for (const char* key :
         {"bpw", "tokens_per_s", "stddev", "bytes_per_token", "gb_per_s", "bandwidth_share"})
      EXPECT_TRUE(row[key].is_number()) << key;
    EXPECT_GT(row["tokens_per_s"], 0.0);
    EXPECT_EQ(row["threads"], 1);
    EXPECT_EQ(row["type"], "tq4");
    EXPECT_EQ(row["samples"].size(), 2u);
  }
}

TEST_F(BenchCommand, RoutingIsTimedWhereThereAreExperts) {
  const auto bench = [&](const char* shape) {
    return walsh({"bench", "--synthetic", shape, "-p", "0", "-n", "2", "-r", "1"});
  };
  for (const char* shape : {"tiny-moe", "tiny-latent", "tiny-chunks"}) {
    const CommandResult r = bench(shape);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("choosing the experts of a token takes"), std::string::npos) << r.out;
  }
  for (const char* shape : {"tiny", "tiny-delta"}) {
    const CommandResult r = bench(shape);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_EQ(r.out.find("choosing the experts"), std::string::npos) << r.out;
  }
}

TEST_F(BenchCommand, AModelGivesATableOrCsv) {
  const CommandResult md = walsh({"bench", model(), "-p", "8", "-n", "2", "-r", "1", "-t", "1"});
  ASSERT_EQ(md.status, 0) << md.err;
  for (const char* column : {"| model", "| size", "| params", "| type", "| bpw", "| threads",
                             "| test", "| t/s", "| GB/s", "| pp8", "| tg2"})
    EXPECT_NE(md.out.find(column), std::string::npos) << column << md.out;
  const CommandResult csv =
      walsh({"bench", model(), "-p", "0", "-n", "2", "-r", "1", "-o", "csv", "-t", "1,2"});
  ASSERT_EQ(csv.status, 0) << csv.err;
  EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 3);
}

TEST_F(BenchCommand, EveryTestIsMeasuredAtEveryDepth) {
  const CommandResult r = walsh({"bench", "--synthetic", "tiny", "-p", "8", "-n", "0,4", "-d",
                                 "0,520", "--parallel", "1,2", "-r", "2", "-o", "json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::vector<std::string> names = {"pp8",        "tg4",        "tg4@2",
                                          "pp8 @ d520", "tg4 @ d520", "tg4@2 @ d520"};
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(rows[i]["test"], names[i]);
    EXPECT_EQ(rows[i]["samples"].size(), 2u);
  }
  // Two layers have two heads of 64 values, fp16 keys and values.
  const double cache = 520.0 * 2 * 2 * 64 * 2 * 2;
  for (size_t i = 3; i < names.size(); ++i) {
    const double more =
        rows[i]["bytes_per_token"].get<double>() - rows[i - 3]["bytes_per_token"].get<double>();
    EXPECT_NEAR(more, i == 3 ? 0 : cache, 1e-6 * cache) << names[i];
  }
}

// The model has 4096 positions.
TEST_F(BenchCommand, ATableWithoutRowsIsRefused) {
  expect_error(walsh({"bench", model(), "-p", "0", "-n", "0"}), 2, "nothing is left to measure");
}

TEST_F(BenchCommand, DepthAndTestHaveToFitTheModel) {
  const auto bench = [&](const std::string& n, const std::string& depth) {
    return walsh({"bench", model(), "-p", "0", "-n", n, "--n-depth", depth, "-r", "1"});
  };
  expect_error(bench("1", "4096"), 2,
               "context: 4097 tokens are asked for, the model has room for 1 to 4096");
  expect_error(bench("3597", "500"), 2, "context: 4097 tokens");
  for (const char* depth : {"-1", "1048577", "8,x"})
    expect_error(bench("1", depth), 2, "--n-depth");
  // The largest cache is that of the other test.
  expect_error(walsh({"bench", model(), "-p", "4097", "-n", "20", "--parallel", "256", "-r", "1"}),
               2, "context: 4097 tokens");
}

// It has nothing to clean up, but ends as every command does. The signal comes when it is awaited.
TEST_F(BenchCommand, FormatsEndWithTheStatusOfAnInterruption) {
  const CommandResult r = shell(fmt::format(
      "{} formats --check > {} 2> {} & p=$!; "
      "until grep -q 'SigCgt:.*[4-7c-f]...$' /proc/$p/status; do :; done; kill -TERM $p; wait $p",
      quoted(WALSH_COMMAND), quoted(file("stdout")), quoted(file("stderr"))));
  EXPECT_EQ(r.status, 130) << r.err;
  EXPECT_EQ(r.err, "walsh: error: stopped by the user\n");
  EXPECT_EQ(r.out, "");
}

TEST_F(BenchCommand, KernelsAreTimedPerFormatShapeAndBatch) {
  const CommandResult r = walsh({"bench", "--kernels", "--types", "tq3,q8_0", "--shapes", "256x64",
                                 "--batches", "1,3", "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["type"], "q8_0");
  EXPECT_EQ(rows[3]["batch"], 3);
  EXPECT_GT(rows[3]["gmac_per_s"], 0.0);
  expect_error(walsh({"bench", "--kernels", "--shapes", "10x64"}), 2, "10x64");
}

TEST_F(BenchCommand, FormatsAreTimedInEncodingAndDecoding) {
  const CommandResult r =
      walsh({"bench", "--formats", "--types", "tq3,tc3:hq", "-r", "1", "-t", "1", "-o", "json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["type"], "tc3:hq");
  for (const Json& row : rows) {
    for (const char* key :
         {"encode_weights_per_s", "decode_weights_per_s", "gb_per_s", "bandwidth_share"})
      EXPECT_GT(row[key], 0.0) << key;
    EXPECT_NEAR(row["bpw"].get<double>(), 3.06, 0.07);
  }
  expect_error(walsh({"bench", "--formats", "--types", "tq9"}), 2, "tq9");
}

TEST_F(BenchCommand, FormatsListsErrorsAndBounds) {
  const CommandResult r = walsh({"formats", "tq3", "q8_0", "f32", "--json"});
  ASSERT_EQ(r.status, 0) << r.err;
  const Json rows = Json::parse(r.out);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["name"], "tq3");
  EXPECT_NEAR(rows[0]["bpw"].get<double>(), 3.125, 1e-9);
  EXPECT_LE(rows[0]["nmse"]["normal"], rows[0]["bound"]);
  for (const char* key : {"t4", "outlier"})
    EXPECT_GT(rows[0]["nmse"][key], 0.01) << key;
  EXPECT_EQ(rows[2]["nmse"]["normal"], 0.0);
  expect_error(walsh({"formats", "tq9"}), 2, "tq9");
}

TEST_F(BenchCommand, FormatsChecksBoundsWithEveryInstructionSet) {
  const CommandResult r = walsh({"formats", "tc3:h:L14", "tq3", "--check", "-t", "2"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("all bounds hold"), std::string::npos) << r.out;
}

TEST_F(BenchCommand, FormatsListsWhatAUserChoosesAmong) {
  const CommandResult r = walsh({"formats"});
  ASSERT_EQ(r.status, 0) << r.err;
  const std::string types = r.out.substr(0, r.out.find("\n\n"));
  const auto lines = std::count(types.begin(), types.end(), '\n');
  EXPECT_EQ(lines, 17) << types;
  for (const char* beaten : {"\nq4_0 ", "\npq3 "})
    EXPECT_EQ(types.find(beaten), std::string::npos) << types;
  EXPECT_EQ(types.find(':'), std::string::npos) << types;
  EXPECT_NE(types.find("\ntc3.5 "), std::string::npos) << types;
  EXPECT_NE(r.out.find("--variants"), std::string::npos) << r.out;
  for (const Json& row : Json::parse(walsh({"formats", "--json"}).out))
    EXPECT_FALSE(row.contains("nmse")) << row;
}

TEST_F(BenchCommand, FormatsListsTheKernelsOfEveryType) {
  const CommandResult table = walsh({"formats", "--kernels"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("GPU products"), std::string::npos) << table.out;
  const CommandResult json = walsh({"formats", "--kernels", "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  for (const auto& row : Json::parse(json.out)) {
    EXPECT_TRUE(row["cpu"]["products"]) << row;
    EXPECT_EQ(row["cpu"]["lookup"], row["name"] == "pq3") << row;
    EXPECT_TRUE(row["gpu"]["products"]) << row;  // what users choose among runs everywhere
  }
  expect_error(walsh({"formats", "tq3", "--kernels"}), 2, "--kernels");
}

TEST_F(BenchCommand, FormatsListsCacheTypes) {
  const CommandResult table = walsh({"formats", "--cache"});
  ASSERT_EQ(table.status, 0) << table.err;
  const CommandResult json = walsh({"formats", "--cache", "--json"});
  const Json rows = Json::parse(json.out);
  ASSERT_EQ(rows.size(), 8u);
  for (const Json& row : rows)
    EXPECT_NE(table.out.find(row["name"].get<std::string>()), std::string::npos) << row;
  EXPECT_EQ(rows[3]["name"], "tq3_0");
  EXPECT_EQ(rows[3]["bpv"], 3.5);
  expect_error(walsh({"formats", "tq3", "--cache"}), 2, "--cache");
}

TEST_F(BenchCommand, HelpListsEveryType) {
  for (const CommandResult& r : {walsh({"--help-all"}), walsh({"quantize", "--help-all"})}) {
    EXPECT_EQ(r.status, 0);
    for (const char* type : {"itq3_s", "tq2", "tq4+4", "q8_0", "bf16", "tc3.5"})
      EXPECT_NE(r.out.find(type), std::string::npos) << type;
  }
  EXPECT_TRUE(walsh({"--version"}).out.starts_with("walsh "));
}

}  // namespace
}  // namespace walsh
