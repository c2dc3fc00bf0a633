#include "generate/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "grammar/gbnf.h"
#include "walsh/error.h"

namespace walsh {
namespace {

std::shared_ptr<const grammar::TokenGrammar> digits_grammar(std::vector<std::string> vocabulary) {
  grammar::GraphBuilder builder("grammar");
  const auto root = add_gbnf(builder, R"(root ::= [0-9]{2,3})");
  return std::make_shared<grammar::TokenGrammar>(
      builder.finish(root), std::make_shared<grammar::TokenVocabulary>(std::move(vocabulary)),
      "grammar");
}

std::vector<int> finite(std::span<const float> logits) {
  std::vector<int> ids;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i])) ids.push_back(static_cast<int>(i));
  return ids;
}

TEST(Constraint, LeavesTheLogitsOfWhatMayFollow) {
  Constraint constraint(digits_grammar({"a", "1", "23", "", "4567"}), {3});
  const std::vector<float> logits = {9, 1, 2, 3, 4};
  EXPECT_THAT(finite(constraint.allowed(logits)), testing::ElementsAre(1, 2));
  constraint.accept(2);
  EXPECT_FALSE(constraint.ended());
  EXPECT_THAT(finite(constraint.allowed(logits)), testing::ElementsAre(1, 3));
  constraint.accept(1);
  EXPECT_TRUE(constraint.ended());
  EXPECT_TRUE(constraint.allowed(logits).empty());
}

TEST(Constraint, AVocabularyThatCannotGoOnIsAnError) {
  Constraint constraint(digits_grammar({"a", "b"}), {});
  const std::vector<float> logits = {1, 2};
  EXPECT_THROW(constraint.allowed(logits), Error);
}

}  // namespace
}  // namespace walsh
