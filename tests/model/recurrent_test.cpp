// Tests models with recurrent layers: lengths around chunk borders, and truncation.
#include <gtest/gtest.h>

#include <atomic>

#include "model/golden.h"
#include "model/support.h"
#include "threads.h"
#include "walsh/stop.h"

namespace walsh {
namespace {

// The models have delta nets or short convolutions.
class RecurrentTest : public testing::TestWithParam<const char*> {
 protected:
  ThreadPool pool_{test::kThreads};
  Model model_ = test::load_folder(test::tiny_model(GetParam()), pool_);

  std::vector<int32_t> tokens(int64_t count, uint64_t seed = 1) const {
    return test::random_tokens(count, model_.config.vocab, seed);
  }
  // Returns the logits behind a text in a session of its own.
  std::vector<float> alone(const std::vector<int32_t>& text) const {
    Session session(model_, {250});
    return test::all_logits(session, text).back();
  }
  static void read(Session& session, std::span<const int32_t> text, int64_t snapshot,
                   int64_t sequence = 0) {
    const SequenceTokens item{sequence, text, 0, snapshot};
    session.evaluate({&item, 1}, [](size_t, int64_t, std::span<const float>) {});
  }
  static std::vector<float> last_logits(Session& session, std::span<const int32_t> text,
                                        int64_t sequence = 0) {
    std::vector<float> result;
    const SequenceTokens item{sequence, text, 1};
    session.evaluate({&item, 1}, [&](size_t, int64_t, std::span<const float> logits) {
      result.assign(logits.begin(), logits.end());
    });
    return result;
  }
};

TEST(RecurrentModel, LengthsAroundTheBordersOfChunksEqualTransformers) {
  ThreadPool pool(test::kThreads);
  const Model model = test::load_folder(test::tiny_model("qwen35-wide-tiny"), pool);
  const test::Golden golden = test::read_golden("qwen35-wide-tiny");
  for (size_t p = 0; p < golden.positions.size(); ++p) {
    const auto length = golden.positions[p] + 1;
    Session session(model, {static_cast<int64_t>(length)});
    const auto text = std::span(golden.tokens).first(length);
    const std::vector<float> row = test::all_logits(session, {text.begin(), text.end()}).back();
    for (size_t i = 0; i < golden.ids.size(); ++i) {
      EXPECT_NEAR(row[golden.ids[i]], golden.logits[p][i], test::kTolerance * golden.max_abs[p])
          << length;
    }
  }
}

TEST_P(RecurrentTest, ATextGivesTheSameBitsHoweverItIsCut) {
  const auto text = tokens(200);
  const std::vector<float> whole = alone(text);
  for (const size_t piece : {1, 3, 31, 32, 33, 64, 100}) {
    Session session(model_, {250});
    std::vector<float> last;
    for (size_t i = 0; i < text.size(); i += piece)
      last = last_logits(session, std::span(text).subspan(i, std::min(piece, text.size() - i)));
    EXPECT_EQ(last, whole) << piece;
  }
}

TEST_P(RecurrentTest, GoesBackToASnapshot) {
  SessionOptions options{250};
  options.snapshots = 2;
  Session session(model_, options);
  const auto text = tokens(120), other = tokens(30, 2);
  read(session, text, 50);
  EXPECT_EQ(session.reachable(0, 120), 120);
  EXPECT_EQ(session.reachable(0, 119), 50);
  EXPECT_EQ(session.reachable(0, 49), 0);
  session.truncate(70);
  EXPECT_EQ(session.position(), 50);
  auto expected = std::vector(text.begin(), text.begin() + 50);
  expected.insert(expected.end(), other.begin(), other.end());
  EXPECT_EQ(last_logits(session, other), alone(expected));
  session.truncate(49);
  EXPECT_EQ(session.position(), 0);
  EXPECT_EQ(last_logits(session, other), alone(other));
}

TEST_P(RecurrentTest, TokensThatMayBeWrongAreTakenBackOneByOne) {
  const auto text = tokens(60), draft = tokens(5, 2);
  for (const size_t together : {5u, 1u}) {
    for (int64_t kept = 0; kept <= 5; ++kept) {
      SessionOptions options{250};
      options.revocable = 5;
      Session session(model_, options);
      read(session, text, 0);
      EXPECT_EQ(session.revocable(0), 5);
      for (size_t i = 0; i < draft.size(); i += together) {
        const auto count = static_cast<int64_t>(together);
        const SequenceTokens item{0, std::span(draft).subspan(i, together), 0, 0, count};
        session.evaluate({&item, 1}, [](size_t, int64_t, std::span<const float>) {});
      }
      EXPECT_EQ(session.reachable(0, 60 + kept), 60 + kept);
      session.truncate(60 + kept);
      auto whole = text;
      whole.insert(whole.end(), draft.begin(), draft.begin() + kept);
      whole.push_back(7);
      EXPECT_EQ(last_logits(session, std::span(whole).last(1)), alone(whole)) << kept;
      session.truncate(50);
      EXPECT_EQ(session.position(), 0) << "what is older is gone";
    }
  }
}

TEST_P(RecurrentTest, WithoutSnapshotsItGoesBackToTheBeginning) {
  Session session(model_, {250});
  const auto text = tokens(60);
  read(session, text, 50);
  session.truncate(55);
  EXPECT_EQ(session.position(), 0);
  EXPECT_EQ(last_logits(session, text), alone(text));
}

TEST_P(RecurrentTest, ForksShareSnapshots) {
  SessionOptions options{250};
  options.snapshots = 1;
  options.sequences = 3;
  Session session(model_, options);
  const auto text = tokens(90), other = tokens(20, 2);
  read(session, text, 41);
  const int64_t whole = session.fork(0, 90), part = session.fork(0, 60);
  EXPECT_EQ(session.position(whole), 90);
  EXPECT_EQ(session.position(part), 41);
  session.close(0);
  auto longer = text, shorter = std::vector(text.begin(), text.begin() + 41);
  longer.insert(longer.end(), other.begin(), other.end());
  shorter.insert(shorter.end(), other.begin(), other.end());
  EXPECT_EQ(last_logits(session, other, whole), alone(longer));
  EXPECT_EQ(last_logits(session, other, part), alone(shorter));
  session.truncate(50, part);
  EXPECT_EQ(last_logits(session, other, part), alone(shorter));
  EXPECT_THROW(session.truncate(200, part), Error);
  EXPECT_THROW(session.fork(part, 200), Error);
}

TEST_P(RecurrentTest, ABatchThatFailedIsAsIfItHadNotBeen) {
  SessionOptions options{250};
  options.snapshots = 1;
  Session session(model_, options);
  const auto text = tokens(60), other = tokens(20, 2);
  read(session, text, 33);
  const std::atomic<bool> stop = true;
  {
    const StopScope scope(stop);
    EXPECT_THROW(read(session, other, 0), Error);
  }
  EXPECT_EQ(session.position(), 33);
  auto expected = std::vector(text.begin(), text.begin() + 33);
  expected.insert(expected.end(), other.begin(), other.end());
  EXPECT_EQ(last_logits(session, other), alone(expected));
}

// On a GPU nobody else looks at the request.
TEST_P(RecurrentTest, ARequestToStopInFrontOfABatchTakesNothingBack) {
  Session session(model_, {250});
  const auto text = tokens(60), other = tokens(20, 2);
  read(session, text, 0);
  const std::atomic<bool> stop = true;
  {
    const StopScope scope(stop);
    EXPECT_THROW(session.forward(other, [](int64_t, std::span<const float>) {}), Error);
  }
  EXPECT_EQ(session.position(), 60);
  auto expected = std::vector(text.begin(), text.end());
  expected.insert(expected.end(), other.begin(), other.end());
  EXPECT_EQ(last_logits(session, other), alone(expected));
}

TEST_P(RecurrentTest, StatesCountAgainstTheLimitOfMemory) {
  SessionOptions options{64};
  options.snapshots = 100000;
  options.max_bytes = uint64_t{64} << 20;
  try {
    Session session(model_, options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::limit);
    EXPECT_EQ(e.where(), "states of recurrent layers");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecurrentTest,
                         testing::Values("qwen35-tiny", "lfm2-tiny", "granite-hybrid-tiny"),
                         [](const auto& info) {
                           const char* other = info.index == 1 ? "convolutions" : "mamba2";
                           return std::string(info.index == 0 ? "delta_nets" : other);
                         });

}  // namespace
}  // namespace walsh
