#include "generate/model_drafts.h"

#include <algorithm>
#include <limits>

#include "model/positions.h"

namespace walsh {
SessionOptions ModelDrafts::session_options(const ModelConfig& config, int64_t texts,
                                            int64_t positions) {
  SessionOptions options;
  options.max_positions = std::min(most_positions(config), positions);
  options.sequences = options.revoking = texts;
  if (!is_recurrent(config)) return options;
  options.snapshots = 2 * texts;
  options.revocable = DraftDepth::kMost;
  return options;
}

ModelDrafts::ModelDrafts(const Model& model, int64_t texts, int64_t positions,
                         const DraftCosts* costs)
    : session_(model, session_options(model.config, texts, positions)),
      costs_(costs != nullptr ? *costs : DraftCosts()),
      estimates_(costs == nullptr) {
  session_.close(0);
  for (int64_t i = 0; i < texts; ++i)
    places_.emplace_back().sequence = session_.open();
}

// Both models read their weights for a token. Besides, a step of the small one costs a share of the
// larger one's step, on a GPU for its launches. More rows cost a CPU arithmetic, and a GPU hardly
// anything.
void ModelDrafts::serve(const Model& model) {
  vocab_ = model.config.vocab;
  if (!estimates_) return;
  const bool gpu = model.device.cuda && model.parts.empty();
  const auto bytes = static_cast<double>(std::max<uint64_t>(1, model.bytes_per_token()));
  costs_.draft = static_cast<double>(session_.model().bytes_per_token()) / bytes;
  costs_.draft += gpu ? 0.1 : 0.02;
  costs_.row = gpu ? 0.02 : 0.25;
}

int64_t ModelDrafts::begin(std::span<const int32_t> tokens, const std::string& owner) {
  Place* taken = take_place(std::span(places_), tokens, owner, ++clock_);
  if (taken == nullptr) return -1;
  if (taken->tokens.empty()) session_.truncate(0, taken->sequence);
  return taken - places_.data();
}

void ModelDrafts::end(int64_t text) {
  place(text).taken = false;
}

// Returns whether the text fits and has no token beyond the vocabulary: models of one tokenizer may
// have more or fewer rows without tokens.
bool ModelDrafts::knows(std::span<const int32_t> tokens) const {
  const int64_t vocab = session_.model().config.vocab;
  return std::ssize(tokens) <= session_.capacity() &&
         std::all_of(tokens.begin(), tokens.end(), [&](int32_t token) { return token < vocab; });
}

// Takes back all tokens after the common prefix with the text, of which at most `most` tokens
// stay.
void ModelDrafts::match(Place& place, std::span<const int32_t> tokens, int64_t most) {
  const int64_t length = session_.position(place.sequence);  // it is shorter if a step has failed
  if (length < std::ssize(place.tokens)) place.tokens.resize(static_cast<size_t>(length));
  const int64_t same = std::min(most, common_prefix(place.tokens, tokens));
  if (same < length) session_.truncate(same, place.sequence);
  place.tokens.resize(static_cast<size_t>(session_.position(place.sequence)));
}

// Evaluates the new tokens of the texts, and guesses the first token of a draft for those that want
// one.
std::vector<ModelDrafts::Open> ModelDrafts::read(std::span<DraftTask> tasks) {
  const int64_t texts = std::count_if(
      tasks.begin(), tasks.end(), [](const DraftTask& task) { return task.chooser != nullptr; });
  std::vector<Open> open;
  std::vector<SequenceTokens> batch, readings;
  for (DraftTask& task : tasks) {
    Place& at = place(task.text);
    const bool guesses = task.chooser != nullptr;
    const auto count = std::ssize(task.tokens);
    int64_t wanted = 0;
    if (guesses) {
      // The last token of a draft is not evaluated.
      const int64_t most = std::min(task.most, session_.capacity() - count + 1);
      wanted = at.depth.choose(costs_, texts, most);
    }
    if ((guesses && wanted == 0) || !knows(task.tokens)) continue;
    match(at, task.tokens, guesses ? count - 1 : count);
    const auto rest = task.tokens.subspan(at.tokens.size());
    if (rest.empty()) continue;
    at.tokens.insert(at.tokens.end(), rest.begin(), rest.end());
    if (guesses) {
      open.push_back({&task, &at, *task.chooser, wanted});
      // The last token must be revocable: the same text may be asked for again.
      batch.push_back({at.sequence, rest, 1, 0, 1});
    } else {
      readings.push_back({at.sequence, rest, 0, std::ssize(rest)});
    }
  }
  batch.insert(batch.end(), readings.begin(), readings.end());
  evaluate(batch, open);
  return open;
}

// Evaluates a batch. Its item i belongs to open[i], as far as `open` goes.
void ModelDrafts::evaluate(std::span<const SequenceTokens> batch, std::span<Open> open) {
  if (batch.empty()) return;
  session_.evaluate(batch, [&](size_t item, int64_t, std::span<const float> logits) {
    guess(open[item], logits);
  });
}

// Guesses one token from the logits. The draft ends where no token can be guessed.
void ModelDrafts::guess(Open& open, std::span<const float> logits) {
  std::span<const float> known = logits;
  if (std::ssize(logits) != vocab_) {
    logits_.assign(static_cast<size_t>(vocab_), -std::numeric_limits<float>::infinity());
    std::copy_n(logits.begin(), std::min(logits.size(), logits_.size()), logits_.begin());
    known = logits_;
  }
  if (!guess_token(open.chooser, known, *open.task)) open.wanted = 0;
}

void ModelDrafts::draft(std::span<DraftTask> tasks) {
  std::vector<Open> open = read(tasks);
  for (;;) {
    std::erase_if(open, [](const Open& o) { return std::ssize(o.task->drafted) >= o.wanted; });
    if (open.empty()) return;
    std::vector<SequenceTokens> batch;
    for (const Open& o : open) {
      o.place->tokens.push_back(o.task->drafted.back());
      batch.push_back({o.place->sequence, std::span(o.place->tokens).last(1), 1, 0, 1});
    }
    evaluate(batch, open);
  }
}

void ModelDrafts::judge(int64_t text, size_t drafted, size_t right) {
  place(text).depth.judge(drafted, right);
}

}  // namespace walsh
