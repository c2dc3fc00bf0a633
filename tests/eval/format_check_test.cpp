#include "eval/format_check.h"

#include <gtest/gtest.h>

#include "base/cpu.h"
#include "codec/format.h"
#include "walsh/error.h"

namespace walsh {
namespace {

TEST(FormatCheck, everyFormatReachesItsBound) {
  ThreadPool pool;
  const std::vector<FormatReport> reports = check_formats(pool, {}, Measure::normal);
  ASSERT_EQ(reports.size(), all_formats().size());
  for (const FormatReport& r : reports) {
    EXPECT_TRUE(r.passes()) << r.name << ": " << r.nmse_normal << " > " << r.bound;
    RecordProperty(r.name, std::to_string(r.nmse_normal));
  }
}

// The figures are of an independent Python implementation on other samples of the same
// distributions; the outlier columns of a sample matter more than its size, hence the wider margin.
TEST(FormatCheck, agreesWithIndependentMeasurements) {
  const struct {
    const char* name;
    double bpw, normal, t4, outlier;
  } expected[] = {
      {"itq3_s", 3.125, 0.0328, 0.0320, 0.0244},  {"itq3_s:strict", 3.125, 0.0588, 0.0573, 0.0402},
      {"itq3_s8", 3.625, 0.0255, 0.0250, 0.0204}, {"tq2", 2.125, 0.114, 0.110, 0.0699},
      {"tq3", 3.125, 0.0315, 0.0304, 0.0217},     {"tq4", 4.125, 0.00775, 0.00752, 0.00601}};
  std::vector<std::string> names;
  for (const auto& e : expected)
    names.emplace_back(e.name);
  ThreadPool pool;
  const std::vector<FormatReport> reports = check_formats(pool, names);
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(reports[i].name, names[i]);
    EXPECT_DOUBLE_EQ(reports[i].bpw, expected[i].bpw);
    EXPECT_NEAR(reports[i].nmse_normal / expected[i].normal, 1, 0.01) << names[i];
    EXPECT_NEAR(reports[i].nmse_t4 / expected[i].t4, 1, 0.02) << names[i];
    EXPECT_NEAR(reports[i].nmse_outlier / expected[i].outlier, 1, 0.10) << names[i];
  }
}

TEST(FormatCheck, doesNotDependOnThreadsOrIsa) {
  const std::vector<std::string> names = {"tq3", "itq3_s8"};
  ThreadPool one(1), three(3);
  const std::vector<FormatReport> expected = check_formats(one, names);
  force_isa("ref");
  const std::vector<FormatReport> found = check_formats(three, names);
  force_isa("");
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(found[i].nmse_normal, expected[i].nmse_normal);
    EXPECT_EQ(found[i].nmse_outlier, expected[i].nmse_outlier);
  }
}

TEST(FormatCheck, samplesOfTrellisesHaveTheSameBytesOnEveryIsa) {
  const std::vector<std::string> names = {"tc3:h:L14", "tc2:h:L14", "tc3:hq:L14", "pq3"};
  for (const std::string& name : names)
    EXPECT_TRUE(checked_by_sample(name)) << name;
  EXPECT_FALSE(checked_by_sample("tq3"));
  EXPECT_FALSE(checked_by_sample("f16"));
  ThreadPool pool(2);
  const std::vector<CodedSample> expected = coded_samples(pool, names);
  for (const CodedSample& sample : expected) {
    EXPECT_GE(sample.stored.size(), 32u * 256 / 4);
    EXPECT_EQ(sample.decoded.size(), 32u * 256);
  }
  EXPECT_FALSE(expected[0] == expected[2]);
  for (const Isa isa : supported_isas()) {
    force_isa(isa_name(isa));
    EXPECT_EQ(coded_samples(pool, names), expected) << isa_name(isa);
  }
  force_isa("");
}

TEST(FormatCheck, aMissedBoundDoesNotPass) {
  FormatReport report;
  report.nmse_normal = 0.2;
  EXPECT_TRUE(report.passes());
  report.bound = 0.1;
  EXPECT_FALSE(report.passes());
}

TEST(FormatCheck, unknownNameIsAUsageError) {
  ThreadPool pool(1);
  const std::vector<std::string> names = {"tq3", "nope"};
  EXPECT_THROW(check_formats(pool, names), Error);
}

}  // namespace
}  // namespace walsh
