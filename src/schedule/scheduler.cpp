#include "schedule/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/stop.h"
#include "schedule/failure.h"
#include "schedule/logprobs.h"

namespace walsh {
namespace {

// Evaluating fewer tokens than this again takes less time than sharing them.
constexpr int64_t kLeastPrefix = 8;

// By default the cache has room for the running requests; kept prefixes share it with them.
SessionOptions session_options(const Model& model, const SchedulerOptions& options) {
  SessionOptions session;
  session.max_positions = options.positions;
  session.sequences = options.running + (options.share_prefixes ? options.kept : 0);
  session.cache_positions = options.cache_positions;
  if (session.cache_positions == 0)
    session.cache_positions = options.running * kv_shape(model, session).capacity;
  if (!is_recurrent(model.config)) return session;
  if (options.share_prefixes) session.snapshots = options.running;
  if (options.lookup || options.drafts != nullptr) {
    session.revocable = kRevocableTokens;
    session.revoking = options.running;
  }
  return session;
}

SchedulerOptions one_text(DraftSource* drafts) {
  SchedulerOptions options;
  options.drafts = drafts;
  options.running = options.kept = 1;
  options.waiting = 0;
  options.step_tokens = std::numeric_limits<int64_t>::max();
  return options;
}

double seconds_between(std::chrono::steady_clock::time_point from,
                       std::chrono::steady_clock::time_point to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

}  // namespace

Scheduler::Scheduler(const Model& model, const SchedulerOptions& options)
    : Scheduler(model, options, session_options(model, options)) {}

Scheduler::Scheduler(const Model& model, const SessionOptions& session, DraftSource* drafts)
    : Scheduler(model, one_text(drafts), session) {}

Scheduler::Scheduler(const Model& model, const SchedulerOptions& options,
                     const SessionOptions& session)
    : options_(options),
      session_(model, session),
      final_norm_(model),
      pace_(options.step_seconds),
      least_prefix_(options.kept > 0 && session.sequences <= options.running ? 1 : kLeastPrefix) {
  if (options.running < 1 || options.running > session_.max_rows()) {
    throw Error(ErrorCode::usage, "requests",
                fmt::format("{} together, expected 1 to {}", options.running, session_.max_rows()));
  }
  if (options.store != nullptr && !session_.saves())
    throw Error(ErrorCode::usage, "prefixes", "only what lies on the CPU can be kept in files yet");
  session_.close(0);
  if (options_.drafts != nullptr) options_.drafts->serve(model);
  publish();
}

double Scheduler::now() const {
  if (options_.clock) return options_.clock();
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

// The drafts end because their source may serve another scheduler later.
Scheduler::~Scheduler() {
  for (const auto& active : running_)
    end_drafts(*active);
}

std::unique_ptr<Scheduler::Active> Scheduler::checked(NewText text) const {
  TextRequest& request = text.request;
  const auto count = static_cast<int64_t>(request.prompt.size());
  request.shifts = request.shifts && request.images.empty();
  const int64_t vocab = model().config.vocab;
  if (count == 0) throw Error(ErrorCode::usage, "prompt", "has no tokens");
  if (count > room() && !request.shifts) {
    throw Error(ErrorCode::usage, "prompt",
                fmt::format("has {} tokens, but there are only {} positions", count, room()));
  }
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < vocab) continue;
    throw Error(ErrorCode::usage, "prompt",
                fmt::format("token {} is outside the vocabulary of {}", token, vocab));
  }
  check_images(request.images, count, session_);
  check_sampler_options(request.sampler);
  auto active = std::make_unique<Active>();
  active->tokens = request.prompt;
  active->request = std::move(request);
  active->images = rows_of(active->request.images);
  active->sink = std::move(text.sink);
  active->arrived = Clock::now();
  if (count > room()) cut_prompt(*active);
  return active;
}

uint64_t Scheduler::add(TextRequest request, std::shared_ptr<RequestSink> sink) {
  std::vector<NewText> texts;
  texts.push_back({std::move(request), std::move(sink)});
  return add(std::move(texts)).front();
}

std::vector<uint64_t> Scheduler::add(std::vector<NewText> texts) {
  std::vector<std::unique_ptr<Active>> all;
  for (NewText& text : texts)
    all.push_back(checked(std::move(text)));
  std::vector<uint64_t> ids;
  ids.reserve(all.size());
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Error(ErrorCode::interrupted, "request", "the server is shutting down");
  if (unfinished_ + static_cast<int64_t>(all.size()) > most()) {
    refused_ += all.size();
    throw Error(ErrorCode::limit, "request", fmt::format("{} are waiting", options_.waiting));
  }
  added_.reserve(added_.size() + all.size());
  for (auto& active : all) {
    ids.push_back(active->id = next_id_++);
    added_.push_back(std::move(active));
  }
  unfinished_ += static_cast<int64_t>(all.size());
  changed_.notify_all();
  return ids;
}

void Scheduler::cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(request);
  changed_.notify_all();
}

SchedulerCounts Scheduler::counts() const {
  const std::lock_guard lock(mutex_);
  SchedulerCounts counts = published_;
  counts.refused = refused_;
  return counts;
}

void Scheduler::between_steps(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Error(ErrorCode::interrupted, "request", "the server is shutting down");
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Scheduler::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

bool Scheduler::step_or_fail() {
  bool more = false;
  if (const auto failure = failure_of([&] { more = step(); })) {
    for (auto& active : running_)
      active->error = *failure;
    for (auto& active : waiting_)
      active->error = *failure;
    remove_ended();
  }
  return more;
}

void Scheduler::run() {
  for (;;) {
    if (step_or_fail()) {
      const std::lock_guard lock(mutex_);
      if (!stopping_) continue;
      break;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return stopping_ || !added_.empty() || !cancelled_.empty() || !tasks_.empty();
    });
    if (stopping_) break;
  }
  take_requests();
  for (auto& active : running_)
    active->ended = StopReason::callback;
  for (auto& active : waiting_)
    active->ended = StopReason::callback;
  remove_ended();
  store_kept();
  publish();
}

void Scheduler::take_requests() {
  std::vector<uint64_t> cancelled;
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    for (auto& active : added_)
      waiting_.push_back(std::move(active));
    totals_.requests += added_.size();
    added_.clear();
    cancelled.swap(cancelled_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks)
    task();
  const auto mark = [&](Active& active) {
    if (std::find(cancelled.begin(), cancelled.end(), active.id) == cancelled.end()) return;
    active.ended = StopReason::callback;
    ++totals_.cancelled;
  };
  if (cancelled.empty()) return;
  for (auto& active : waiting_)
    mark(*active);
  for (auto& active : running_)
    mark(*active);
  remove_ended();
}

bool Scheduler::step() {
  take_requests();
  admit();
  const double start = now();  // drafts are a part of the step
  std::vector<Piece> pieces = fitting_plan();
  if (!pieces.empty()) ++totals_.steps;
  if ((!pieces.empty() || !open_.empty()) && evaluate(pieces))
    pace_.took(now() - start, prompt_rows_);
  shift_full();
  remove_ended();
  publish();
  if (!running_.empty() || !waiting_.empty()) return true;
  const std::lock_guard lock(mutex_);
  return !added_.empty();  // a sink adds texts when one has ended
}

void Scheduler::admit() {
  auto next = waiting_.begin();
  while (!crowded_ && next != waiting_.end() &&
         static_cast<int64_t>(running_.size()) < options_.running) {
    Active& active = **next;
    if (options_.store != nullptr) find_stored(active);
    const Known known = known_prefix(active);
    if (is_being_read(active, known)) {
      ++next;
      continue;
    }
    if (!make_room(active, known)) return;
    active.error = failure_of([&] {
      give_sequence(active, known);
      active.place = free_place(active.request.place);
      start_choosing(active);
    });
    if (active.error) {  // the device or this request failed
      finish(active);
    } else {
      running_.push_back(std::move(*next));
    }
    next = waiting_.erase(next);
  }
}

// Returns whether a running request is still evaluating a longer common prefix: to wait for it
// costs less work and hardly any time.
bool Scheduler::is_being_read(const Active& active, const Known& known) const {
  if (!shares_prefixes(active) || !session_.rewinds()) return false;
  const auto most = static_cast<int64_t>(active.tokens.size()) - 1;
  return std::any_of(running_.begin(), running_.end(), [&](const auto& other) {
    if (other->missing() <= 1 || other->request.owner != active.request.owner) return false;
    const int64_t common = std::min(most, common_prefix(active.key(), other->key()));
    return common >= std::max(known.common, other->evaluated) + least_prefix_;
  });
}

// Returns whether there are pages for its prompt besides those that running prompts still need: a
// request admitted without them would be preempted and its prompt evaluated twice. Drops kept
// prefixes to make room.
bool Scheduler::make_room(const Active& active, const Known& known) {
  if (running_.empty()) return true;
  const KvShape& shape = session_.pages().shape();
  const auto pages = [&](const Active& text, int64_t there) {
    const auto wanted = std::min(shape.capacity, static_cast<int64_t>(text.tokens.size()) + 1);
    return std::max<int64_t>(0, shape.pages_for(wanted) - there / shape.page_positions);
  };
  int64_t needed = pages(active, known.common);
  for (const auto& other : running_)
    needed += pages(*other, shape.pages_for(other->evaluated) * shape.page_positions);
  if (known.kept) prefixes_.touch(known.sequence);
  const size_t own = known.kept ? 1 : 0;
  while (needed > session_.pages().free_pages() && prefixes_.size() > own)
    drop_kept();
  return needed <= session_.pages().free_pages();
}

DraftSource* Scheduler::drafts_of(const TextRequest& request) {
  if (request.most_drafted == 0) return nullptr;
  return request.lookup || options_.lookup ? &ngrams_ : options_.drafts;
}

void Scheduler::end_drafts(Active& active) {
  if (active.drafts != nullptr) active.drafts->end(active.draft_text);
  active.drafts = nullptr;
}

bool Scheduler::may_be_on_device(const TextRequest& request) const {
  return session_.can_sample() && request.logprobs < 0 && !request.prompt_logprobs &&
         request.on_devices();
}

void Scheduler::begin_drafts(Active& active) {
  const TextRequest& request = active.request;
  DraftSource* const drafts = drafts_of(request);
  const bool asked = drafts != &ngrams_ || request.lookup;
  if (drafts == nullptr || (!asked && may_be_on_device(request))) return;
  active.draft_text = drafts->begin(active.tokens, request.owner);
  if (active.draft_text >= 0) active.drafts = drafts;
}

void Scheduler::start_choosing(Active& active) {
  // A request that was preempted keeps the time when it was first admitted.
  if (active.admitted == Clock::time_point()) active.admitted = Clock::now();
  const TextRequest& request = active.request;
  if (request.reading != Reading::none) return;
  begin_drafts(active);
  active.on_device = may_be_on_device(request) && active.drafts == nullptr;
  if (active.on_device) {
    session_.start_sampling(after_draws(request.sampler, active.generated), active.tokens,
                            active.sequence);
  } else if (!active.chooser) {
    active.chooser.emplace(request);
    for (const int32_t token : active.tokens)
      active.chooser->read(token);
  }
}

void Scheduler::remove_ended() {
  const auto remove = [&](auto& list) {
    for (auto it = list.begin(); it != list.end();) {
      Active& active = **it;
      if (!active.ended && !active.error) {
        ++it;
        continue;
      }
      finish(active);
      it = list.erase(it);
    }
  };
  remove(running_);
  remove(waiting_);
  if (running_.empty()) drop_open();
}

// Ends a request that has finished or failed; the caller removes it from its list.
void Scheduler::finish(Active& active) {
  for (Piece& piece : open_)
    if (piece.active == &active) piece.active = nullptr;
  end_drafts(active);
  release(active);
  {
    const std::lock_guard lock(mutex_);
    --unfinished_;  // its sink may add another text in its place
  }
  tell_end(active);
}

void Scheduler::tell_end(const Active& active) {
  RequestEnd end;
  end.reason = active.ended.value_or(StopReason::callback);
  end.prompt_tokens = static_cast<int64_t>(active.request.prompt.size());
  end.cached_tokens = active.cached;
  end.tokens = active.generated;
  end.dropped = active.dropped;
  end.decoded_tokens = std::max<int64_t>(0, active.choices - 1);
  end.drafted = active.drafted;
  end.drafted_right = active.drafted_right;
  const auto now = Clock::now(), never = Clock::time_point();
  const auto admitted = active.admitted == never ? now : active.admitted;
  const auto first = active.first_token == never ? now : active.first_token;
  end.queue_seconds = seconds_between(active.arrived, admitted);
  end.prompt_seconds = seconds_between(admitted, first);
  end.decode_seconds = std::max(0.0, seconds_between(first, now) - active.told_seconds);
  const auto fail = [&](const Error& error) {
    ++totals_.failed;
    // An error here cannot be reported to anybody.
    failure_of([&] { active.sink->failed(error, end); });
  };
  const StopScope whole(kNotStopped);  // a request to stop must not lose the end of the text
  if (active.error) return fail(*active.error);
  if (const auto failure = failure_of([&] { active.sink->ended(end); })) return fail(*failure);
  ++totals_.ended;
}

void Scheduler::forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit) {
  if (is_full()) drop_kept();
  const int64_t sequence = session_.open();
  try {
    session_.forward(tokens, sink, first_logit, sequence);
  } catch (...) {
    session_.close(sequence);
    throw;
  }
  session_.close(sequence);
}

void Scheduler::publish() {
  totals_.running = static_cast<int64_t>(running_.size());
  totals_.waiting = static_cast<int64_t>(waiting_.size());
  totals_.kept = static_cast<int64_t>(prefixes_.size());
  totals_.pages = session_.pages().shape().pages;
  totals_.free_pages = session_.pages().free_pages();
  const std::lock_guard lock(mutex_);
  published_ = totals_;
}

}  // namespace walsh
