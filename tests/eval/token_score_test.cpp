#include "eval/token_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities)
    logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

TEST(TokenNll, UniformLogitsCostTheLogOfTheVocabulary) {
  const std::vector<float> logits(1000, 3.5f);
  EXPECT_NEAR(token_nll(logits, 17), std::log(1000.0), 1e-12);
}

TEST(TokenNll, DoesNotOverflowAndIgnoresACommonOffset) {
  const std::vector<float> logits = {10000.0f, 10000.0f, -10000.0f};
  EXPECT_NEAR(token_nll(logits, 0), std::log(2.0), 1e-12);
  EXPECT_NEAR(token_nll(logits, 2), 20000.0 + std::log(2.0), 1e-9);
}

TEST(TokenNll, RefusesTargetsOutsideTheVocabulary) {
  const std::vector<float> logits = {0, 1};
  EXPECT_THROW(token_nll(logits, -1), Error);
  EXPECT_THROW(token_nll(logits, 2), Error);
}

TEST(TokenNll, RefusesLogitsThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {0, bad, 1};
    try {
      token_nll(logits, 0);
      FAIL() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
    }
  }
}

TEST(CompareToken, MatchesAHandComputedCase) {
  // With p = (1/2, 1/4, 1/4) and q = (1/4, 1/4, 1/2), KL is 1/2 ln 2 + 0 + 1/4 ln 1/2 = 1/4 ln 2.
  const TokenScore s = compare_token(logs({0.5, 0.25, 0.25}), logs({0.25, 0.25, 0.5}), 0);
  EXPECT_NEAR(s.kld, 0.25 * std::log(2.0), 1e-7);
  EXPECT_NEAR(s.nll_reference, std::log(2.0), 1e-7);
  EXPECT_NEAR(s.nll, std::log(4.0), 1e-7);
  EXPECT_NEAR(s.dp, -0.25, 1e-7);
  EXPECT_FALSE(s.same_top);
}

TEST(CompareToken, AModelDoesNotDivergeFromItself) {
  Random random(7);
  std::vector<float> logits(8192);
  for (float& x : logits)
    x = static_cast<float>(4 * random.normal());
  const TokenScore s = compare_token(logits, logits, 5);
  EXPECT_EQ(s.kld, 0);
  EXPECT_EQ(s.dp, 0);
  EXPECT_TRUE(s.same_top);
}

TEST(CompareToken, IsNotFooledByAnOffsetOfAllLogits) {
  std::vector<float> p = {1, 2, 3, 4}, q = {9, 10, 11, 12};
  const TokenScore s = compare_token(p, q, 2);
  EXPECT_NEAR(s.kld, 0, 1e-14);
  EXPECT_TRUE(s.same_top);
}

TEST(CompareToken, TokensThatTheReferenceExcludesDoNotCount) {
  const float never = -std::numeric_limits<float>::infinity();
  const std::vector<float> p = {0, never, 0}, q = {0, 0, 0};
  EXPECT_NEAR(compare_token(p, q, 0).kld, std::log(1.5), 1e-12);
}

TEST(CompareToken, RefusesModelsWithOtherVocabularies) {
  const std::vector<float> p = {0, 1}, q = {0, 1, 2};
  try {
    compare_token(p, q, 0);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
  }
}

}  // namespace
}  // namespace walsh
