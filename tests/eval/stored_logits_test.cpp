#include "eval/stored_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "eval/evaluator.h"
#include "model/session.h"
#include "model/synthetic.h"
#include "temporary_folder.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

class StoredLogitsTest : public testing::Test {
 protected:
  // Appends a row of the file for logits, written as the format asks.
  static void append_row(std::string& bytes, std::span<const float> logits) {
    const float top = *std::max_element(logits.begin(), logits.end());
    const float least = std::max(*std::min_element(logits.begin(), logits.end()), top - 16);
    double sum = 0;
    for (const float x : logits)
      sum += std::exp(static_cast<double>(x - top));
    const float scale = (top - least) / 65535;
    append(bytes, scale);
    append(bytes, least - top - static_cast<float>(std::log(sum)));
    for (const float x : logits)
      append(bytes, static_cast<uint16_t>(std::lround(std::max(x - least, 0.0f) / scale)));
    if (logits.size() % 2 != 0) append(bytes, uint16_t{0});
  }
  // Returns what llama-perplexity would write if `model` were its.
  static std::string of_model(const Model& model, int ctx, int windows, int32_t bos) {
    std::string bytes = "_logits_", rows;
    const auto vocab = static_cast<int32_t>(model.config.vocab);
    for (const int32_t number : {ctx, vocab, windows})
      append(bytes, number);
    for (int w = 0; w < windows; ++w) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < ctx; ++i)
        tokens.push_back((7 * i + 3 * w + 5) % vocab);
      for (const int32_t token : tokens)
        append(bytes, token);
      tokens[0] = bos;
      Session session(model, {.max_positions = ctx});
      session.forward(tokens, [&](int64_t i, std::span<const float> logits) {
        if (i >= ctx / 2 && i < ctx - 1) append_row(rows, logits);
      });
    }
    return bytes + rows;
  }
  Model model(const char* type, uint32_t seed = 42) {
    const Format& format = get_format(type);
    SyntheticSource source("tiny", {&format, &format, &format}, seed);
    LoadOptions options;
    options.pool = &pool_;
    return Model::load(source, parse_config(source.config_json(), "tiny"), options);
  }
  void expect_refused(std::string_view bytes, const std::string& part) {
    try {
      StoredLogits(folder_.write("bad", bytes));
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::bad_input);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }

  test::TemporaryFolder folder_;
  ThreadPool pool_{test::kThreads};
};

TEST_F(StoredLogitsTest, AModelDoesNotDivergeFromItsOwnFileAndOthersDo) {
  const Model m = model("f32"), other = model("f32", 7);
  const StoredLogits file(folder_.write("base", of_model(m, 32, 2, 1)));
  EvalOptions options;
  options.bos = 1;
  const Evaluation same = evaluate(m, file, options);
  EXPECT_EQ(same.windows, 2);
  EXPECT_EQ(same.perplexity.count(), 2 * 15);
  EXPECT_NEAR(same.divergence->kld().value, 0, 1e-6);
  EXPECT_NEAR(same.divergence->ln_ratio().value, 0, 1e-4);
  EXPECT_GT(evaluate(other, file, options).divergence->kld().value, 1e-6);
  options.bos = 2;  // another text
  EXPECT_GT(evaluate(m, file, options).divergence->kld().value, 1e-6);
  options.windows.chunks = 1;
  EXPECT_EQ(evaluate(m, file, options).windows, 1);
}

TEST_F(StoredLogitsTest, WhatTheWriterCutsOffAddsNothing) {
  std::string bytes = "_logits_";
  for (const int32_t number : {4, 3, 1, 0, 1, 2, 0})
    append(bytes, number);
  append_row(bytes, std::vector<float>{0, -1, -40});
  const StoredLogits file(folder_.write("base", bytes));
  std::vector<float> row(3);
  file.read_row(0, 2, row);
  const double sum = 1 + std::exp(-1.0);
  EXPECT_NEAR(row[0], -std::log(sum), 1e-3);
  EXPECT_NEAR(row[1], -1 - std::log(sum), 1e-3);
  EXPECT_LT(row[2], -32);
  EXPECT_EQ(file.tokens(0), (std::vector<int32_t>{0, 1, 2, 0}));
}

TEST_F(StoredLogitsTest, OtherFilesAndOtherSizesAreRefused) {
  const std::string good = of_model(model("f32"), 8, 1, 1);
  StoredLogits(folder_.write("base", good));
  expect_refused("", "is no file of log-probabilities");
  expect_refused("_logits_", "is no file of log-probabilities");
  expect_refused(std::string_view(good).substr(0, good.size() - 1), "expected 1 windows");
  expect_refused(good + "x", "expected 1 windows");
  for (const size_t at : {8u, 12u, 16u}) {
    std::string bad = good;
    for (size_t i = 0; i < 4; ++i)
      bad[at + i] = static_cast<char>(i < 3 ? 0xff : 0x7f);
    expect_refused(bad, "windows of");
  }
  std::string bad = good;
  bad[20 + 2] = 0x7f;
  expect_refused(bad, "has the token");
}

TEST_F(StoredLogitsTest, AnotherVocabularyIsAWrongUse) {
  std::string bytes = "_logits_";
  for (const int32_t number : {4, 3, 1, 0, 1, 2, 0})
    append(bytes, number);
  append_row(bytes, std::vector<float>{0, -1, -2});
  const StoredLogits file(folder_.write("base", bytes));
  EXPECT_THROW(evaluate(model("f32"), file, EvalOptions()), Error);
}

}  // namespace
}  // namespace walsh
