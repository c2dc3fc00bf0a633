// Plans a step of the scheduler, runs it and takes its results.
#include <algorithm>
#include <utility>

#include "base/stop.h"
#include "schedule/failure.h"
#include "schedule/logprobs.h"
#include "schedule/scheduler.h"

namespace walsh {

// Returns after how many of the next rows a snapshot of the recurrent state is taken: before the
// last token of a prompt, from where the same prompt can continue, or otherwise after the last
// whole page of a chunk, where other texts may share the beginning.
int64_t Scheduler::snapshot_in(const Active& active, int64_t rows) const {
  const auto last = static_cast<int64_t>(active.request.prompt.size()) - 1;
  const int64_t end = active.evaluated + rows;
  if (active.evaluated >= last) return 0;
  if (last <= end) return last - active.evaluated;
  const int64_t page = session_.pages().shape().page_positions;
  return std::max<int64_t>(0, end / page * page - active.evaluated);
}

// Plans one token for every text that is being generated, and divides the rest of budget and time
// among prompts. Prompts come first in the batch, so that the single tokens are neighbours. Drafts
// get what is left.
std::vector<Scheduler::Piece> Scheduler::plan(bool drafts) {
  std::vector<Active*> prompts, others;
  for (const auto& active : running_)
    if (!will_end(*active)) (active->missing() > 1 ? prompts : others).push_back(active.get());
  const auto running = static_cast<int64_t>(running_.size());
  const int64_t budget = std::clamp(options_.step_tokens, running, session_.max_rows());
  int64_t left = budget - static_cast<int64_t>(others.size());
  // Texts that are being generated wait for the prompts, so prompts get only a share of the time.
  int64_t for_prompts = left;
  if (!others.empty())
    for_prompts = std::min(left, std::max(pace_.rows(), static_cast<int64_t>(prompts.size())));
  std::vector<Piece> pieces;
  const auto add = [&](Active* active, int64_t rows, int64_t prompt_rows) {
    if (active->open) return pieces.push_back({active, {active->sequence, {}, 1}, true, 0});
    if (active->has_draft()) {
      const auto all = static_cast<int64_t>(active->attempt.size());
      SequenceTokens attempt{active->sequence, active->attempt, all, 0, all - 1};
      attempt.images = active->images;
      return pieces.push_back({active, attempt, true, 0});
    }
    const bool last = rows == active->missing();
    const auto tokens =
        std::span<const int32_t>(active->tokens)
            .subspan(static_cast<size_t>(active->evaluated), static_cast<size_t>(rows));
    const int64_t logits = active->request.prompt_logprobs && active->generated == 0 ? rows
                           : last && !is_pooling(active->request.reading)            ? 1
                                                                                     : 0;
    SequenceTokens piece{active->sequence, tokens, logits, snapshot_in(*active, rows)};
    piece.images = active->images;
    pieces.push_back({active, piece, last, prompt_rows});
  };
  auto to_come = static_cast<int64_t>(prompts.size());
  int64_t long_ones = session_.max_prompts();
  for (Active* active : prompts) {
    if (active->chooser) active->chooser->set_draft({});
    const int64_t share = long_ones > 0 ? for_prompts / to_come : 1;
    const int64_t rows = whole_rows(active->request.images, active->evaluated,
                                    std::min(active->missing(), std::max<int64_t>(1, share)));
    if (rows > 1) --long_ones;
    add(active, rows, rows);
    left -= rows;
    for_prompts -= rows;
    --to_come;
  }
  if (drafts) read_along(pieces);
  draft(others, drafts ? left : 0, long_ones);
  for (Active* active : others)
    add(active, 1, 0);
  return pieces;
}

TextProgress Scheduler::progress_of(const Active& active) const {
  return {active.request.max_tokens, session_.capacity(), std::ssize(active.tokens),
          active.generated};
}

// Returns whether the text ends with the token that is on the way, whatever it is.
bool Scheduler::will_end(const Active& active) const {
  if (!active.open) return false;
  TextProgress progress = progress_of(active);
  ++progress.chosen;
  ++progress.positions;
  return progress.end(true, false).has_value();
}

// Returns how many tokens, at most `most`, may be drafted after the last one of a text: as far as
// it may continue, and as they can be taken back.
int64_t Scheduler::draft_room(const Active& active, int64_t most) const {
  if (active.drafts == nullptr || active.generated == 0 || active.missing() != 1) return 0;
  if (active.request.most_drafted >= 0) most = std::min(most, active.request.most_drafted);
  most = std::min(most, progress_of(active).draft_room());
  return std::min(most, session_.revocable(active.sequence));
}

// Drafts tokens after the last ones of at most `count` texts, together at most `rows` tokens.
void Scheduler::draft(std::span<Active* const> texts, int64_t rows, int64_t count) {
  std::vector<Active*> guessed;
  for (Active* active : texts) {
    if (active->chooser) active->chooser->set_draft({});
    if (std::ssize(guessed) < count && draft_room(*active, rows) > 0) guessed.push_back(active);
  }
  if (guessed.empty()) return;
  const int64_t each = rows / std::ssize(guessed);
  for (DraftSource* source : {static_cast<DraftSource*>(&ngrams_), options_.drafts}) {
    std::vector<DraftTask> tasks;
    std::vector<Active*> own;
    for (Active* active : guessed) {
      if (active->drafts != source) continue;
      own.push_back(active);
      tasks.push_back({active->draft_text, active->tokens, &active->chooser->next(),
                       draft_room(*active, each)});
    }
    if (tasks.empty()) continue;
    if (!guess(*source, tasks, own)) continue;
    for (size_t i = 0; i < tasks.size(); ++i) {
      Active& active = *own[i];
      active.attempt = {active.tokens.back()};
      active.attempt.insert(active.attempt.end(), tasks[i].drafted.begin(), tasks[i].drafted.end());
      active.chooser->set_draft(std::move(tasks[i].drafted));
    }
  }
}

// Lets a draft source read the prompts that the model reads in this step.
void Scheduler::read_along(std::span<const Piece> prompts) {
  std::vector<DraftTask> tasks;
  std::vector<Active*> texts;
  for (const Piece& piece : prompts) {
    Active& active = *piece.active;
    if (active.drafts == nullptr || active.drafts != options_.drafts) continue;
    const auto known = static_cast<size_t>(active.evaluated) + piece.tokens.tokens.size();
    tasks.push_back({active.draft_text, std::span<const int32_t>(active.tokens).first(known)});
    texts.push_back(&active);
  }
  if (!tasks.empty()) guess(*options_.drafts, tasks, texts);
}

// Returns whether the source has guessed, or read, the new tokens of the texts. If it fails, for
// example because memory runs out, the texts go on without drafts.
bool Scheduler::guess(DraftSource& source, std::span<DraftTask> tasks,
                      std::span<Active* const> texts) {
  if (!failure_of([&] { source.draft(tasks); })) return true;
  for (Active* active : texts)
    end_drafts(*active);
  return false;
}

// Returns a plan() for which enough pages are free; the latest request is preempted until there
// are. While pieces are open, which are taken first, the plan may be empty.
std::vector<Scheduler::Piece> Scheduler::fitting_plan() {
  for (bool drafts = true;; drafts = false) {
    std::vector<Piece> pieces = plan(drafts);
    std::vector<SequenceTokens> batch;
    for (const Piece& piece : pieces)
      batch.push_back(piece.tokens);
    if (session_.fits(batch)) return pieces;
    if (drafts) continue;
    if (drop_kept()) continue;
    if (!open_.empty()) return {};
    if (running_.size() > 1) {
      preempt_last();
      continue;
    }
    // A single text has all pages, so the context is full.
    Active& only = *running_.front();
    if (only.request.shifts && only.generated > 0 && shift(only)) continue;
    only.ended = StopReason::context_full;
    return {};
  }
}

void Scheduler::preempt_last() {
  ++totals_.preempted;
  crowded_ = true;
  Active& active = *running_.back();
  end_drafts(active);
  session_.close(active.sequence);
  active.sequence = -1;
  active.evaluated = 0;
  active.prompt_scores.clear();
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

// Runs a part of a step; if that fails, all of its texts fail.
template <class Body>
void Scheduler::run_part(std::span<const Piece> part, const Body& body) {
  if (part.empty()) return;
  const auto failure = failure_of(body);
  if (!failure) return;
  for (const Piece& piece : part)
    if (piece.active != nullptr) piece.active->error = failure;
}

// Gives the device the next step before it takes what was chosen in the last one. Returns whether
// it has waited for a part of a step, whose time can then be measured.
bool Scheduler::evaluate(std::vector<Piece>& pieces) {
  const auto host = std::stable_partition(
      pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.active->on_device; });
  const auto on_device = std::span<const Piece>(pieces.begin(), host);
  const auto on_host = std::span<const Piece>(host, pieces.end());
  const std::vector<Piece> before = std::exchange(open_, {});
  for (const Piece& piece : before)
    if (piece.active != nullptr) piece.active->open = false;
  prompt_rows_ = before.empty() ? 0 : std::exchange(open_rows_, 0);
  for (const Piece& piece : pieces) {
    if (piece.active->generated == 0) totals_.prompt_tokens += piece.tokens.tokens.size();
    (piece.active->on_device ? open_rows_ : prompt_rows_) += piece.prompt_rows;
  }
  run_part(on_device, [&] {
    check_stop();  // a GPU does not look at requests to stop
    submit(on_device);
  });
  run_part(before, [&] { take(before); });
  run_part(on_host, [&] {
    check_stop();
    evaluate_on_host(on_host);
  });
  return !before.empty() || !on_host.empty();
}

void Scheduler::evaluate_on_host(std::span<const Piece> pieces) {
  std::vector<SequenceTokens> batch;
  for (const Piece& piece : pieces) {
    SequenceTokens& item = batch.emplace_back(piece.tokens);
    const Active& active = *piece.active;
    const int64_t rows = std::ssize(item.tokens);
    item.read = PooledState::needed(active.request.reading, active.evaluated, rows, piece.last);
    if (active.drafts != nullptr && active.drafts->reads_streams()) item.read = rows;
  }
  session_.evaluate(
      batch,
      [&](size_t item, int64_t index, std::span<const float> logits) {
        receive(pieces[item], index, logits);
      },
      [&](size_t item, int64_t index, std::span<const float> stream) {
        Active& active = *pieces[item].active;
        const int64_t position = active.evaluated + index;
        if (active.drafts != nullptr)
          return active.drafts->see(active.draft_text, position, stream);
        active.state.add(active.request.reading, position, stream, final_norm_);
      });
  for (const Piece& piece : pieces) {
    if (piece.active->has_draft()) judge_draft(*piece.active);
    Active& active = *piece.active;
    active.evaluated = session_.position(active.sequence);
    if (!piece.last || !is_pooling(active.request.reading)) continue;
    const auto failure = failure_of([&] { tell_read(active, active.state.values()); });
    if (failure) active.error = failure;
  }
}

void Scheduler::submit(std::span<const Piece> pieces) {
  std::vector<SequenceTokens> batch;
  for (const Piece& piece : pieces)
    batch.push_back(piece.tokens);
  session_.submit(batch);
  for (const Piece& piece : pieces) {
    Active& active = *piece.active;
    active.evaluated = session_.position(active.sequence);
    active.open = piece.last;
    if (piece.last) open_.push_back(piece);
  }
}

// Takes what the device has chosen after pieces that were submitted.
void Scheduler::take(std::span<const Piece> pieces) {
  const std::span<const int32_t> chosen = session_.take();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].active == nullptr) continue;
    Active& active = *pieces[i].active;
    if (active.ended || active.error) continue;
    const int32_t token = chosen[i];
    const auto failure = failure_of([&] {
      if (token < 0)
        throw Error(ErrorCode::bad_input, "logits", "the model computed no finite logit");
      accept(active, {token, 0, {}});
    });
    if (failure) active.error = failure;
  }
}

// Discards what the device has chosen, because all texts have ended. A failure is ignored here: the
// next use of the device will report it.
void Scheduler::drop_open() {
  if (open_.empty()) return;
  open_.clear();
  open_rows_ = 0;
  failure_of([&] { session_.take(); });
}

// Receives the logits of token `index` of a piece. What is chosen after a draft counts as long as
// the draft was right and the text goes on.
void Scheduler::receive(const Piece& piece, int64_t index, std::span<const float> logits) {
  Active& active = *piece.active;
  const auto rows = static_cast<int64_t>(piece.tokens.tokens.size());
  if (active.has_draft()) {
    const bool goes_on = !active.ended && !active.error && !active.full;
    if (active.chooser->is_right() && goes_on) choose(active, logits);
    return;
  }
  if (piece.last && index + 1 == rows) return choose(active, logits);
  const auto next = static_cast<size_t>(active.evaluated + index + 1);
  active.prompt_scores.push_back(score_token(logits, active.tokens[next], active.request.logprobs));
}

// Takes back the tokens of an evaluated draft that were wrong.
void Scheduler::judge_draft(Active& active) {
  const int64_t before = active.evaluated;
  const auto known = static_cast<int64_t>(active.tokens.size()) - 1;
  if (session_.position(active.sequence) > known) session_.truncate(known, active.sequence);
  const auto right = static_cast<size_t>(std::max<int64_t>(0, known - before - 1));
  const size_t drafted = active.chooser->drafted().size();
  totals_.drafted_tokens += drafted;
  totals_.drafted_right += right;
  active.drafted += static_cast<int64_t>(drafted);
  active.drafted_right += static_cast<int64_t>(right);
  active.drafts->judge(active.draft_text, drafted, right);
  active.chooser->set_draft({});
}

void Scheduler::choose(Active& active, std::span<const float> logits) {
  // A failure here, such as logits that are not numbers, ends only this text.
  const auto failure = failure_of([&] {
    if (active.request.reading != Reading::none) return tell_read(active, logits);
    const std::optional<int32_t> chosen = active.chooser->choose(logits);
    if (!chosen) {
      count_choice(active);
      active.ended = StopReason::stop_token;
      return;
    }
    const int32_t token = *chosen;
    accept(active, active.request.logprobs < 0
                       ? ScoredToken{token, 0, {}}
                       : score_token(logits, token, active.request.logprobs));
  });
  if (failure) active.error = failure;
}

// Ends a text of which nothing is chosen.
void Scheduler::tell_read(Active& active, std::span<const float> values) {
  count_choice(active);
  const StopScope whole(kNotStopped);  // a request to stop must not lose it
  active.sink->read(values);
  active.ended = StopReason::max_tokens;
}

void Scheduler::count_choice(Active& active) {
  ++active.choices;
  if (active.first_token == Clock::time_point()) active.first_token = Clock::now();
}

void Scheduler::accept(Active& active, const ScoredToken& token) {
  const TextRequest& request = active.request;
  count_choice(active);
  const StopScope whole(kNotStopped);  // a request to stop must not lose a token
  if (active.generated == 0 && request.prompt_logprobs)
    active.sink->prompt_scored(active.prompt_scores);
  if (request.max_tokens == 0) {
    active.ended = StopReason::max_tokens;
    return;
  }
  if (request.stops(token.token)) {
    active.ended = StopReason::stop_token;
    active.stop = token.token;
    return;
  }
  active.tokens.push_back(token.token);
  ++active.generated;
  ++totals_.generated_tokens;
  const auto start = Clock::now();
  const bool wanted = active.sink->chosen(token);
  active.told_seconds += std::chrono::duration<double>(Clock::now() - start).count();
  active.ended = progress_of(active).end(wanted, active.chooser && active.chooser->ended());
  active.full = active.ended == StopReason::context_full && request.shifts;
  if (active.full) active.ended.reset();
}

}  // namespace walsh
