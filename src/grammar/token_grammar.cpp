#include "grammar/token_grammar.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace walsh::grammar {
namespace {

// The states of one grammar may take this much memory; a matcher that exceeds it starts over from
// its current state.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxMaskBytes = size_t{8} << 20;
// One mask or token may take this many steps. A mask of ordinary grammars takes 1 to 3 steps per
// token of the vocabulary.
constexpr uint64_t kSteps = 4'000'000;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Keeps the logits whose bits are set, at most 64. It does not branch per logit, because the sets
// are unpredictable.
void keep(uint64_t word, std::span<float> logits) {
  if (word == ~uint64_t{0}) return;
  if (word == 0) {
    std::fill(logits.begin(), logits.end(), kNever);
    return;
  }
  const auto never = std::bit_cast<uint32_t>(kNever);
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto kept = static_cast<uint32_t>(-static_cast<int32_t>(word >> i & 1));
    const auto bits = std::bit_cast<uint32_t>(logits[i]);
    logits[i] = std::bit_cast<float>((bits & kept) | (never & ~kept));
  }
}

}  // namespace

TokenGrammar::TokenGrammar(Graph graph, std::shared_ptr<const TokenVocabulary> vocabulary,
                           std::string where)
    : graph_(std::move(graph)),
      vocabulary_(std::move(vocabulary)),
      where_(std::move(where)),
      known_(std::make_shared<Known>(graph_, where_)) {
  known_->space.allow(kSteps);
  known_->space.start();
  if (graph_.opens_distinct.empty()) return;
  brackets_ = quotes_ = TokenSet(vocabulary_->size());
  for (size_t id = 0; id < vocabulary_->size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (vocabulary_->text(token).find('[') != std::string::npos) brackets_.add(token);
    if (vocabulary_->text(token).find('"') != std::string::npos) quotes_.add(token);
  }
}

std::shared_ptr<TokenGrammar::Known> TokenGrammar::known() const {
  const std::lock_guard lock(mutex_);
  return known_;
}

std::shared_ptr<TokenGrammar::Known> TokenGrammar::replace(
    const std::shared_ptr<Known>& full) const {
  const std::lock_guard lock(mutex_);
  if (known_ == full) known_ = std::make_shared<Known>(graph_, where_);
  return known_;
}

TokenMatcher::TokenMatcher(std::shared_ptr<const TokenGrammar> grammar)
    : grammar_(std::move(grammar)), known_(grammar_->known()) {
  const std::lock_guard lock(known_->mutex);
  known_->space.allow(kSteps);
  state_ = known_->space.start();
  look();
}

void TokenMatcher::look() {
  complete_ = known_->space.complete(state_);
  can_continue_ = known_->space.can_continue(state_);
}

std::shared_ptr<const TokenSet> TokenMatcher::allowed() {
  const std::lock_guard lock(known_->mutex);
  auto& masks = known_->masks;
  auto& places = known_->places;
  const auto apart = [&](std::shared_ptr<const TokenSet> mask) {
    if (grammar_->graph_.opens_distinct.empty()) return mask;
    return std::make_shared<const TokenSet>(without_repeated(*mask));
  };
  if (const auto place = places.find(state_); place != places.end()) {
    masks.splice(masks.begin(), masks, place->second);
    return apart(masks.front().second);
  }
  known_->space.allow(kSteps);
  auto mask =
      std::make_shared<const TokenSet>(grammar_->vocabulary().readable(known_->space, state_));
  masks.emplace_front(state_, mask);
  places[state_] = masks.begin();
  if (masks.size() > std::max<size_t>(16, kMaxMaskBytes / std::max<size_t>(1, mask->bytes()))) {
    places.erase(masks.back().first);
    masks.pop_back();
  }
  return apart(mask);
}

// Returns those of the tokens that may come next which neither end an item that is already in its
// list nor lead to a place where no other item remains.
TokenSet TokenMatcher::without_repeated(const TokenSet& tokens) {
  using Place = DistinctItems::Place;
  StackSpace& space = known_->space;
  space.allow(kSteps);
  // A string that takes any character as often as it likes can always become another one.
  const auto unbounded = [&](Place place, StateId state) {
    return (place == Place::text || place == Place::inner_text) && space.next_plain(state) == state;
  };
  TokenSet looked_at = tokens;
  if (items_.place() == Place::outside) looked_at.keep_only(grammar_->brackets_);
  if (unbounded(items_.place(), state_)) looked_at.keep_only(grammar_->quotes_);
  TokenSet result = tokens;
  DistinctItems::Trial trial(items_);
  looked_at.for_each([&](int32_t token) {
    trial.reset();
    const StateId state = read_text(space, state_, trial, grammar_->vocabulary().text(token));
    const bool ends = trial.place() == Place::outside || trial.place() == Place::behind;
    bool wrong = state == StackSpace::kDead;
    if (!wrong && !ends && !unbounded(trial.place(), state))
      wrong = (trial.place() == Place::before || !trial.is_new()) && trial.is_lost(space, state);
    if (wrong) result.remove(token);
  });
  return result;
}

bool TokenMatcher::accept(int32_t token) {
  const TokenVocabulary& vocabulary = grammar_->vocabulary();
  if (token < 0 || static_cast<size_t>(token) >= vocabulary.size()) return false;
  const std::string& text = vocabulary.text(token);
  if (text.empty()) return false;
  std::shared_ptr<TokenGrammar::Known> full;
  {
    const std::lock_guard lock(known_->mutex);
    known_->space.allow(kSteps);
    DistinctItems::Trial items(items_);
    const StateId state = read_text(known_->space, state_, items, text);
    if (state == StackSpace::kDead) return false;
    state_ = state;
    items_.keep(items);
    look();
    if (known_->space.bytes() > kMaxBytes) full = known_;
  }
  if (!full) return true;
  const auto fresh = grammar_->replace(full);
  const std::scoped_lock lock(full->mutex, fresh->mutex);
  fresh->space.allow(kSteps);
  state_ = fresh->space.import(full->space, state_);
  known_ = fresh;
  return true;
}

bool mask_logits(TokenMatcher& matcher, std::span<const int32_t> ends, std::span<float> logits) {
  const auto allowed = matcher.allowed();
  std::vector<std::pair<size_t, float>> kept;
  for (const int32_t end : ends)
    if (matcher.complete()) kept.emplace_back(end, logits[static_cast<size_t>(end)]);
  for (size_t first = 0; first < logits.size(); first += 64)
    keep(allowed->words()[first / 64],
         logits.subspan(first, std::min<size_t>(64, logits.size() - first)));
  for (const auto& [token, logit] : kept)
    logits[token] = logit;
  return !kept.empty() || !allowed->empty();
}

}  // namespace walsh::grammar
