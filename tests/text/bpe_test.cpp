#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "text_test_util.h"

namespace walsh {
namespace {

BpeModel make(const std::string& vocab, const std::string& merges, const std::string& rest = "") {
  return BpeModel(
      parse_json(R"({"type": "BPE", "vocab": )" + vocab + R"(, "merges": )" + merges + rest + "}",
                 "test"),
      "model");
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view word) {
  BpeModel::Workspace workspace;
  std::vector<int32_t> ids;
  model.encode(word, workspace, test::plenty(), ids);
  return ids;
}

using Ids = std::vector<int32_t>;

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const BpeModel model =
      make(R"({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "aa": 5})", R"(["b c", "a b", "a a"])");
  EXPECT_EQ(encode(model, "abc"), (Ids{0, 4}));
  EXPECT_EQ(encode(model, "aaa"), (Ids{5, 0}));
  EXPECT_EQ(encode(model, "aab"), (Ids{0, 3}));
  EXPECT_EQ(encode(model, ""), Ids{});
}

TEST(Bpe, ReadsBothSpellingsOfMergesAndTheVersionLine) {
  const std::string vocab = R"({"a": 0, "b": 1, "ab": 2, " ": 3, " a": 4})";
  EXPECT_EQ(encode(make(vocab, R"(["#version: 0.2", "a b"])"), "ab"), (Ids{2}));
  EXPECT_EQ(encode(make(vocab, R"([["a", "b"], [" ", "a"]])"), "ab a"), (Ids{2, 4}));
}

TEST(Bpe, ALaterMergeOfTheSamePairTakesTheRank) {
  const std::string vocab = R"({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4})";
  EXPECT_EQ(encode(make(vocab, R"(["a b", "b c"])"), "abc"), (Ids{3, 2}));
  EXPECT_EQ(encode(make(vocab, R"(["a b", "b c", "a b"])"), "abc"), (Ids{0, 4}));
}

TEST(Bpe, IgnoreMergesTakesWholeWordsFromTheVocabulary) {
  const std::string vocab = R"({"a": 0, "b": 1, "aba": 2})";
  EXPECT_EQ(encode(make(vocab, "[]", R"(, "ignore_merges": true)"), "aba"), (Ids{2}));
  EXPECT_EQ(encode(make(vocab, "[]"), "aba"), (Ids{0, 1, 0}));
}

TEST(Bpe, UnknownCharactersVanishWithoutAnUnkToken) {
  const std::string vocab = R"({"a": 0, "<unk>": 1})";
  EXPECT_EQ(encode(make(vocab, "[]"), "axya"), (Ids{0, 0}));
  EXPECT_EQ(encode(make(vocab, "[]", R"(, "unk_token": "<unk>")"), "axya"), (Ids{0, 1, 1, 0}));
  EXPECT_EQ(encode(make(vocab, "[]", R"(, "unk_token": "<unk>", "fuse_unk": true)"), "axya"),
            (Ids{0, 1, 0}));
}

TEST(Bpe, AnUnkTokenOutsideTheVocabularyMattersOnlyWhenNeeded) {
  const BpeModel model = make(R"({"a": 0})", "[]", R"(, "unk_token": "<unk>")");
  EXPECT_EQ(encode(model, "a"), (Ids{0}));
  EXPECT_THAT(test::error_of([&] { encode(model, "b"); }), testing::HasSubstr("unk_token"));
}

TEST(Bpe, ByteFallbackNeedsAllBytesOfTheCharacter) {
  const std::string vocab = R"({"a": 0, "<0xC3>": 1, "<0xA9>": 2, "<unk>": 3})";
  const BpeModel model =
      make(vocab, "[]", R"(, "byte_fallback": true, "unk_token": "<unk>", "fuse_unk": true)");
  EXPECT_EQ(encode(model, "a\u00E9"), (Ids{0, 1, 2}));
  EXPECT_EQ(encode(model, "\u00E8"), (Ids{3}));
  // The unknown character stays pending behind the byte tokens, as in the tokenizers library.
  EXPECT_EQ(encode(model,
                   "\u00E8\u00E9"
                   "a"),
            (Ids{1, 2, 3, 0}));
}

// Encodes by the definition, in quadratic time: applies the merge of lowest rank, leftmost first,
// until none is left.
Ids encode_by_definition(const std::vector<std::pair<Ids, int32_t>>& merges, Ids ids) {
  while (true) {
    size_t best_rank = merges.size(), best_place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].first == Ids{ids[i], ids[i + 1]}) {
          best_rank = rank;
          best_place = i;
        }
      }
    }
    if (best_rank == merges.size()) {
      return ids;
    }
    ids[best_place] = merges[best_rank].second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

TEST(Bpe, EqualsTheDefinitionOnRandomMergesAndWords) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> tokens = {"a", "b", "c"};
    std::vector<std::pair<Ids, int32_t>> merges;
    Json vocab = {{"a", 0}, {"b", 1}, {"c", 2}}, pairs = Json::array();
    while (merges.size() < 12) {
      const size_t left = random() % tokens.size(), right = random() % tokens.size();
      const std::string joined = tokens[left] + tokens[right];
      if (std::find(tokens.begin(), tokens.end(), joined) != tokens.end() || joined.size() > 12) {
        continue;
      }
      merges.push_back({{static_cast<int32_t>(left), static_cast<int32_t>(right)},
                        static_cast<int32_t>(tokens.size())});
      vocab[joined] = tokens.size();
      pairs.push_back({tokens[left], tokens[right]});
      tokens.push_back(joined);
    }
    const BpeModel model(Json{{"vocab", vocab}, {"merges", pairs}}, "model");
    for (int i = 0; i < 40; ++i) {
      std::string word;
      Ids ids;
      for (size_t n = random() % 30; n > 0; --n) {
        ids.push_back(static_cast<int32_t>(random() % 3));
        word += tokens[static_cast<size_t>(ids.back())];
      }
      EXPECT_EQ(encode(model, word), encode_by_definition(merges, ids)) << word << pairs;
    }
  }
}

TEST(PairTable, FindsExactlyWhatWasInserted) {
  PairTable table(1000);
  for (int32_t i = 0; i < 1000; ++i) {
    table.insert(i, 2 * i, {static_cast<uint32_t>(i), i + 7});
  }
  for (int32_t i = 0; i < 1000; ++i) {
    ASSERT_NE(table.find(i, 2 * i), nullptr);
    EXPECT_EQ(table.find(i, 2 * i)->result, i + 7);
    EXPECT_EQ(table.find(i, 2 * i + 1), nullptr);
  }
  EXPECT_EQ(PairTable().find(0, 0), nullptr);
}

}  // namespace
}  // namespace walsh
