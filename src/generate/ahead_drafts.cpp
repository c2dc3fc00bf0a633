#include "generate/ahead_drafts.h"

#include <algorithm>

#include "model/positions.h"

namespace walsh {
namespace {

// A text may have this many tokens that are seen and not read yet. Steps read them unless memory is
// short; then they are dropped and the layer goes on after them.
constexpr int64_t kMostSeen = 1024;

SessionOptions session_options(const ModelConfig& config, int64_t texts, int64_t positions) {
  SessionOptions options;
  options.max_positions = std::min(most_positions(config), positions);
  options.sequences = texts;
  return options;
}

}  // namespace

AheadDrafts::AheadDrafts(const Model& layer, const AheadDesc& desc, int64_t texts,
                         int64_t positions, int64_t most, const DraftCosts* costs)
    : session_(layer, session_options(layer.config, texts, positions)),
      joins_normed_(desc.joins_normed),
      own_norm_(desc.goes_on_normed ? FinalNorm(layer) : FinalNorm()),
      most_(most),
      costs_(costs != nullptr ? *costs : DraftCosts()),
      estimates_(costs == nullptr) {
  session_.close(0);
  for (int64_t i = 0; i < texts; ++i)
    places_.emplace_back().sequence = session_.open();
}

// A guess reads the weights of the layer and of the head. Each further row that the model checks
// costs a CPU a quarter of a step, for its arithmetic.
void AheadDrafts::serve(const Model& model) {
  if (joins_normed_) model_norm_ = FinalNorm(model);
  if (!estimates_) return;
  const auto bytes = static_cast<double>(std::max<uint64_t>(1, model.bytes_per_token()));
  costs_.draft = static_cast<double>(session_.model().bytes_per_token()) / bytes + 0.02;
  costs_.row = 0.25;
}

int64_t AheadDrafts::begin(std::span<const int32_t> tokens, const std::string& owner) {
  Place* taken = take_place(std::span(places_), tokens, owner, ++clock_);
  if (taken == nullptr) return -1;
  taken->seen.clear();
  return taken - places_.data();
}

void AheadDrafts::see(int64_t text, int64_t position, std::span<const float> stream) {
  Place& at = place(text);
  const int64_t count = std::ssize(at.seen) / width();
  if (position < at.seen_first || position > at.seen_first + count || count >= kMostSeen)
    at.seen.clear();
  if (at.seen.empty()) at.seen_first = position;
  // The outputs that were seen from this position on belonged to tokens that were wrong.
  at.seen.resize(static_cast<size_t>((position - at.seen_first) * width()));
  at.seen.insert(at.seen.end(), stream.begin(), stream.end());
  model_norm_.apply(std::span(at.seen).last(stream.size()));
}

// Takes back the rows that do not belong to the text. If the outputs that were seen begin after
// them, the sequence begins anew there.
void AheadDrafts::match(Place& place, std::span<const int32_t> tokens) {
  const int64_t length = session_.position(place.sequence);  // it is shorter if a step has failed
  const int64_t common = common_prefix(place.tokens, tokens);
  place.rows = std::clamp<int64_t>(common - place.first - 1, 0, std::min(place.rows, length));
  if (!place.seen.empty() && (place.rows == 0 || place.seen_first > place.next())) {
    place.first = place.seen_first;
    place.rows = 0;
  }
  if (place.rows < length) session_.truncate(place.rows, place.sequence);
}

// Returns how many rows can be added, and leaves the outputs that they join at the beginning of
// `seen`. A row needs the token after its position, and room.
int64_t AheadDrafts::joinable(Place& place, std::span<const int32_t> tokens) {
  if (place.seen.empty()) return 0;
  match(place, tokens);
  const int64_t seen = std::ssize(place.seen) / width();
  const int64_t known = std::min(seen, place.next() - place.seen_first);
  place.seen.erase(place.seen.begin(), place.seen.begin() + known * width());
  place.seen_first += known;
  return std::min(
      {seen - known, std::ssize(tokens) - 1 - place.next(), session_.capacity() - place.rows});
}

// Evaluates the new tokens of the texts, and guesses the first token of a draft for those that want
// one.
std::vector<AheadDrafts::Open> AheadDrafts::read(std::span<DraftTask> tasks) {
  const int64_t texts = std::count_if(
      tasks.begin(), tasks.end(), [](const DraftTask& task) { return task.chooser != nullptr; });
  std::vector<Open> open;
  std::vector<SequenceTokens> batch, readings;
  std::vector<Place*> places;
  for (DraftTask& task : tasks) {
    Place& at = place(task.text);
    const int64_t wanted =
        task.chooser == nullptr ? 0 : at.depth.choose(costs_, texts, std::min(task.most, most_));
    if (task.chooser != nullptr && wanted == 0) continue;
    const int64_t count = joinable(at, task.tokens);
    if (count <= 0) continue;
    const auto begin = static_cast<size_t>(at.next());
    SequenceTokens item{at.sequence, task.tokens.subspan(begin + 1, static_cast<size_t>(count)), 0};
    item.streams = std::span<const float>(at.seen).first(static_cast<size_t>(count * width()));
    places.push_back(&at);
    at.rows += count;
    at.tokens.assign(task.tokens.begin(), task.tokens.begin() + at.next() + 1);
    if (wanted > 0 && at.next() == std::ssize(task.tokens) - 1) {
      item.logits = item.read = 1;
      open.push_back({&task, &at, *task.chooser, wanted, {}});
      batch.push_back(item);
    } else {
      readings.push_back(item);
    }
  }
  if (!readings.empty()) evaluate(readings, {});
  evaluate(batch, open);
  for (Place* at : places)
    at->seen.clear();
  return open;
}

// Evaluates a batch. Its item i belongs to open[i]; `open` may be empty.
void AheadDrafts::evaluate(std::span<const SequenceTokens> batch, std::span<Open> open) {
  if (batch.empty()) return;
  session_.evaluate(
      batch,
      [&](size_t item, int64_t, std::span<const float> logits) { guess(open[item], logits); },
      [&](size_t item, int64_t, std::span<const float> stream) {
        open[item].stream.assign(stream.begin(), stream.end());
        own_norm_.apply(open[item].stream);
      });
}

// Guesses one token from the logits. The draft ends where no token can be guessed.
void AheadDrafts::guess(Open& open, std::span<const float> logits) {
  if (!guess_token(open.chooser, logits, *open.task)) open.wanted = 0;
}

// Drafts tokens. The rows of guesses stay in the sequence; match() takes them back when the text
// goes on.
void AheadDrafts::draft(std::span<DraftTask> tasks) {
  std::vector<Open> open = read(tasks);
  for (;;) {
    std::erase_if(open, [&](const Open& o) {
      return std::ssize(o.task->drafted) >= o.wanted ||
             session_.position(o.place->sequence) == session_.capacity();
    });
    if (open.empty()) return;
    std::vector<SequenceTokens> batch;
    std::vector<std::vector<float>> streams;  // evaluate() replaces those of `open`
    streams.reserve(open.size());
    for (Open& o : open) {
      SequenceTokens item{o.place->sequence, std::span(o.task->drafted).last(1)};
      item.streams = streams.emplace_back(std::move(o.stream));
      item.read = 1;
      batch.push_back(item);
    }
    evaluate(batch, open);
  }
}

}  // namespace walsh
