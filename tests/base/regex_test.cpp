#include "base/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "walsh/error.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

// Returns the steps that a search takes, or nothing if `budget` is too little.
uint64_t steps_of(const Regex& regex, std::string_view text) {
  StepBudget budget(UINT64_MAX);
  std::vector<Span> matches;
  regex.find_all(text, budget, matches);
  return budget.spent();
}

void expect_limit(const Regex& regex, const std::string& text, uint64_t steps) {
  StepBudget budget(steps);
  std::vector<Span> matches;
  try {
    regex.find_all(text, budget, matches);
    FAIL() << budget.spent() << " steps";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_STREQ(e.what(),
                 ("f: the pattern: takes more than " + std::to_string(steps) + " steps").c_str());
  }
  // The work between two checks of the budget is bounded too.
  EXPECT_LE(budget.spent(), steps + text.size() + 1);
}

TEST(Regex, CountsWhatAnItemPassesOver) {
  // Each of n starts passes over the rest of the text although it backtracks nowhere.
  const Regex regex = Regex::for_text("a*b|a", "f");
  const uint64_t n = 2000;
  EXPECT_GE(steps_of(regex, std::string(n, 'a')), n * n / 2);
  EXPECT_LE(steps_of(regex, std::string(n, 'a') + "b"), 2 * n + 20);
}

TEST(Regex, EndsHostilePatternsAtTheBudget) {
  const std::string a(100'000, 'a');
  const uint64_t steps = 100 * a.size();
  for (const char* pattern :
       {"a*b|a", ".*x|.", "(?:.*)*(?:.*)*(?:.*)*x", "(?:a|aa|aaa)*[bc]", "(?:a?){40}b|a",
        "(?=.*x)a|a", "(?=(?:a{3})*b)a|a", "(?:a+)+b", "a*a*a*a*a*a*a*a*a*b", "a*?b|a", "a*+b|a",
        "(?:(?:a*)*)*b", "(?<=a)a*b|a"}) {
    SCOPED_TRACE(pattern);
    expect_limit(Regex::for_text(pattern, "f"), a, steps);
  }
}

TEST(Regex, DoesNothingThatIsNotCounted) {
  // Looking for the letters that a match needs would visit the text without trying any item.
  const std::string a(100'000, 'a');
  for (const char* pattern : {"b", "[bc]", "ab", "aab", "\\bb", "^b", "b$"}) {
    EXPECT_GE(steps_of(Regex::for_text(pattern, "f"), a), a.size()) << pattern;
  }
}

TEST(Regex, OneBudgetIsForAllSearches) {
  const Regex regex = Regex::for_names("(a|b)*c", "f");
  StepBudget budget(100'000);
  const auto search_all = [&] {
    for (int i = 0; i < 100'000; ++i)
      regex.matches("abababab", budget);
  };
  EXPECT_THROW(search_all(), Error);
}

TEST(Regex, AsksWhetherToGoOn) {
  const std::atomic<bool> stopped = true;
  const StopScope scope(stopped);
  StepBudget budget(UINT64_MAX);
  std::vector<Span> matches;
  const Regex regex = Regex::for_text("(?:a|aa|aaa)*[bc]", "f");
  for (const char* time : {"at first", "it stays stopped"}) {
    try {
      regex.find_all(std::string(1000, 'a'), budget, matches);
      FAIL() << "it went on: " << time;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::interrupted) << time;
    }
    EXPECT_LT(budget.spent(), 10'000'000u) << time;
  }
}

TEST(Regex, NamesMayHaveAnyBytesAndEndWhereTheyEnd) {
  StepBudget budget(1000);
  EXPECT_TRUE(Regex::for_names("^.b\\W$", "f")
                  .matches("\xFF"
                           "b\xC3",
                           budget));
  EXPECT_FALSE(Regex::for_names("a$", "f").matches("a\n", budget));
  EXPECT_FALSE(Regex::for_names("^b", "f").matches("a\nb", budget));
  EXPECT_TRUE(Regex::for_names("layers\\.(0|1)\\.", "f").matches("model.layers.1.x", budget));
  for (const char* pattern : {"(", "*", "[a", "\\C", "(*UTF)a", "(?<=a*)b"}) {
    EXPECT_THROW(Regex::for_names(pattern, "f"), Error) << pattern;
  }
}

TEST(StepBudget, IsProportionalToTheText) {
  const auto steps_for = [](uint64_t bytes) {
    StepBudget budget = StepBudget::for_text(bytes);
    uint64_t steps = 0;
    while (budget.take(1'000'000))
      steps += 1'000'000;
    return steps;
  };
  const uint64_t none = steps_for(0), some = steps_for(1 << 20), twice = steps_for(2 << 20);
  EXPECT_GT(none, 0u);
  EXPECT_NEAR(static_cast<double>(twice - none), 2.0 * static_cast<double>(some - none), 2e6);
}

}  // namespace
}  // namespace walsh
