// Continues the texts of many requests together, one batch after the other (continuous batching).
//
// A step evaluates one token of every text that is being generated and, within its budget of tokens
// and time, chunks of prompts, so that long prompts do not stall the others (see step_pace.h);
// every admitted request gets something in every step. Requests are admitted in the order of their
// arrival. When pages run out, kept prefixes are dropped first; then the request that came last is
// preempted: it waits again and is evaluated anew later, and what it has told its sink stays valid.
//
// Texts whose tokens a device chooses are one step ahead of the host: the next step is submitted
// with the tokens that the device has just chosen, and only then does the host take them, tell the
// sinks and see which texts have ended. What was computed for those is dropped.
//
// A single text is a scheduler with one place.
//
// Sources: Orca (Yu et al. 2022) for iteration-level scheduling, Sarathi (Agrawal et al. 2023) for
// chunked prefills in decoding batches.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/draft_source.h"
#include "generate/ngram.h"
#include "generate/text_chooser.h"
#include "model/final_norm.h"
#include "model/session.h"
#include "schedule/pooled_state.h"
#include "schedule/prefix_cache.h"
#include "schedule/request.h"
#include "schedule/step_pace.h"

namespace walsh {

class PrefixReader;
class PrefixStore;

struct SchedulerOptions {
  // A text with its prompt has at most this many positions; 0: the default of SessionOptions.
  int64_t positions = 0;
  int64_t running = 16;       // At most this many requests are evaluated together.
  int64_t waiting = 256;      // This many requests may wait in addition.
  int64_t step_tokens = 512;  // A step has at most this many tokens.
  // A step that continues texts should take this long, which limits the prompt chunks beside them;
  // 0: only step_tokens limits them.
  double step_seconds = 0;
  int64_t kept = 16;  // This many prefixes are kept in the cache.
  // All texts together have at most this many positions; 0: `running` times those of one text.
  int64_t cache_positions = 0;
  bool share_prefixes = true;
  // This turns on TextRequest::lookup for all texts that are chosen on the host anyway; their
  // drafts get the rest of a step's budget.
  bool lookup = false;
  // Drafts tokens of all texts without look-up, which are then chosen on the host; null: none. Must
  // outlive the scheduler, and serve no other one at the same time.
  DraftSource* drafts = nullptr;
  // Prefixes that are dropped are written here, and read again where a text begins as they do;
  // null: they are lost. It must outlive the scheduler, which throws usage if its sequences cannot
  // be saved (Session::saves).
  PrefixStore* store = nullptr;
  // Steps are measured by this clock, in seconds; empty: the machine's.
  std::function<double()> clock;
};

// These count since the start, for metrics.
struct SchedulerCounts {
  uint64_t steps = 0;
  uint64_t requests = 0, ended = 0, failed = 0, cancelled = 0, refused = 0, preempted = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  uint64_t drafted_tokens = 0, drafted_right = 0;
  uint64_t restored = 0;  // This many prefixes were read from the store.
  uint64_t shifts = 0;    // Contexts were shifted this often.
  int64_t running = 0, waiting = 0, kept = 0;
  int64_t pages = 0, free_pages = 0;
};

// Says what is at one of the places of texts that are continued together: a running text, or the
// prefix that the last one has left. Valid until the next step.
struct PlaceState {
  uint64_t id = 0;                       // The running text has this id; 0: none runs.
  const TextRequest* request = nullptr;  // The running text has this request.
  std::span<const int32_t> tokens;       // These are evaluated.
  int64_t generated = 0;
  std::string_view owner;
};

// Counts what was written to a file, or read from it.
struct PlaceFile {
  int64_t tokens = 0;
  uint64_t bytes = 0;
};

class Scheduler {
 public:
  // Throws as Session does.
  Scheduler(const Model& model, const SchedulerOptions& options);
  // Continues one text at a time, in a session of one sequence: the text before it stays there, and
  // is cut to what the next one begins with.
  Scheduler(const Model& model, const SessionOptions& session, DraftSource* drafts = nullptr);
  ~Scheduler();

  // Thread-safe. Returns the id by which the request can be cancelled. Throws usage for a prompt
  // that is empty, contains ids outside the vocabulary or does not fit, limit if too many requests
  // wait.
  uint64_t add(TextRequest request, std::shared_ptr<RequestSink> sink);
  // Adds all of several requests or none, in which case none of their sinks is called.
  std::vector<uint64_t> add(std::vector<NewText> texts);
  // Ends the request before the next step, if it has not ended yet. Thread-safe.
  void cancel(uint64_t request);
  SchedulerCounts counts() const;

  // Has the thread that runs the steps call `task` before the next step. Thread-safe. Throws
  // interrupted after stop(). The task must not throw.
  void between_steps(std::function<void()> task);

  // The following functions are for tasks. They throw usage for a place that there is not.
  // Returns all places, slots() of them.
  std::vector<PlaceState> places() const;
  // These write what the owner's text at a place has left to a file of this name in the store, and
  // read it again. Throw usage without a store or such a text, and what PrefixStore throws.
  PlaceFile save_place(int64_t place, const std::string& owner, const std::string& name);
  PlaceFile restore_place(int64_t place, const std::string& owner, const std::string& name);
  // Drops what the owner's texts at a place have left; returns the number of tokens of the last
  // one.
  int64_t erase_place(int64_t place, const std::string& owner);
  // Writes all kept prefixes to the store.
  void store_kept();

  // Runs one step; not thread-safe. Returns false if there is nothing to do.
  bool step();
  // As step(), but an exception ends all requests, and their sinks are told.
  bool step_or_fail();
  // Runs steps until stop(), waiting while there is nothing to do. Then cancels everything
  // unfinished.
  void run();
  void stop();  // Any thread may call it.

  // Calls Session::forward() in a sequence of its own, between two steps.
  void forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit);
  // Returns the tokens of the text that was kept last.
  std::span<const int32_t> kept_tokens() const;
  void forget();  // Drops all that is kept.

  int64_t positions() const { return session_.capacity(); }
  // Returns how many texts are continued together.
  int64_t slots() const { return options_.running; }
  const PrefixStore* store() const { return options_.store; }
  // Returns how many texts there may be, including waiting ones.
  int64_t most() const { return options_.running + options_.waiting; }
  const Model& model() const { return session_.model(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Active {
    uint64_t id = 0;
    TextRequest request;
    std::shared_ptr<RequestSink> sink;
    Clock::time_point arrived, admitted, first_token;
    int64_t sequence = -1;  // It has this sequence of the session; -1: it waits.
    int64_t place = -1;
    bool searched = false;  // If true, the store was asked for its prefix.
    bool full = false;      // If true, the context has to be shifted.
    int64_t dropped = 0;    // Shifts have dropped this many tokens.
    // These are the prompt and the generated tokens; the first `evaluated` of them are in the
    // sequence.
    std::vector<int32_t> tokens;
    std::vector<ImageRows> images;       // The request has these.
    int64_t generated = 0, choices = 0;  // `choices` also counts the stop token.
    int64_t drafted = 0, drafted_right = 0;
    double told_seconds = 0;  // Its sink took this long.
    // The sequence has `evaluated` tokens, of which `cached` were shared with other texts.
    int64_t evaluated = 0, cached = 0;
    std::optional<TextChooser> chooser;  // If it is null, a device chooses.
    // This source guesses the text, which it knows by draft_text; null: nothing does.
    DraftSource* drafts = nullptr;
    int64_t draft_text = -1;
    std::vector<int32_t> attempt;  // It has the last token and the draft, if there is one.
    bool on_device = false;        // If true, the device chooses its tokens.
    bool open = false;             // If true, its next token is in open_.
    int32_t stop = -1;             // This token ended it.
    std::vector<ScoredToken> prompt_scores;
    PooledState state;                // A text that is read has it.
    std::optional<StopReason> ended;  // If it is set, the text is removed after the step.
    std::optional<Error> error;

    bool has_draft() const { return chooser && !chooser->drafted().empty(); }
    TextKey key() const { return {tokens, request.images}; }
    int64_t missing() const { return static_cast<int64_t>(tokens.size()) - evaluated; }
  };
  // A piece is one text's part of a batch.
  struct Piece {
    Active* active;         // If it is null, the text has ended.
    SequenceTokens tokens;  // If it has none, the token that the device has chosen last is meant.
    bool last;              // If true, the next token is sampled after it.
    int64_t prompt_rows;    // So many of its tokens are of a prompt.
  };

  // Names a sequence that has a common prefix with a text, and the prefix's length.
  struct Known {
    int64_t sequence = -1, common = 0;
    bool kept = false;  // If true, it is in prefixes_; otherwise a running request has it.
  };

  // scheduler.cpp and scheduler_prefixes.cpp define these: they admit requests, give them sequences
  // and end them.
  Scheduler(const Model& model, const SchedulerOptions& options, const SessionOptions& session);
  std::unique_ptr<Active> checked(NewText text) const;
  void take_requests();
  void admit();
  bool may_be_on_device(const TextRequest& request) const;
  void start_choosing(Active& active);
  DraftSource* drafts_of(const TextRequest& request);
  void begin_drafts(Active& active);
  static void end_drafts(Active& active);
  bool shares_prefixes(const Active& active) const;
  Known known_prefix(const Active& active) const;
  bool is_being_read(const Active& active, const Known& known) const;
  bool make_room(const Active& active, const Known& known);
  bool is_full() const;
  void give_sequence(Active& active, const Known& known);
  void keep_known(Active& active);
  int64_t free_place(int64_t wanted) const;
  void remove_ended();
  void finish(Active& active);
  void release(Active& active);
  bool drop_kept();
  void tell_end(const Active& active);
  void publish();
  double now() const;
  // scheduler_step.cpp defines these: they plan and run a step.
  int64_t snapshot_in(const Active& active, int64_t rows) const;
  std::vector<Piece> plan(bool drafts);
  TextProgress progress_of(const Active& active) const;
  bool will_end(const Active& active) const;
  int64_t draft_room(const Active& active, int64_t most) const;
  void draft(std::span<Active* const> texts, int64_t rows, int64_t count);
  void read_along(std::span<const Piece> prompts);
  static bool guess(DraftSource& source, std::span<DraftTask> tasks,
                    std::span<Active* const> texts);
  std::vector<Piece> fitting_plan();
  void preempt_last();
  bool evaluate(std::vector<Piece>& pieces);
  template <class Body>
  void run_part(std::span<const Piece> part, const Body& body);
  void evaluate_on_host(std::span<const Piece> pieces);
  void submit(std::span<const Piece> pieces);
  void take(std::span<const Piece> pieces);
  void drop_open();
  void judge_draft(Active& active);
  void receive(const Piece& piece, int64_t index, std::span<const float> logits);
  void choose(Active& active, std::span<const float> logits);
  static void tell_read(Active& active, std::span<const float> values);
  static void count_choice(Active& active);
  void accept(Active& active, const ScoredToken& token);
  // scheduler_store.cpp defines these: they exchange prefixes with files.
  bool make_room_for(int64_t tokens);
  void find_stored(Active& active);
  void store_prefix(const PrefixCache::Entry& entry, bool waits);
  void take_restored(PrefixCache::Entry entry, PrefixReader& reader);
  void check_place(int64_t place) const;
  PrefixStore& files_of_places() const;
  // scheduler_shift.cpp defines these: texts lose the middle of what they are too long for.
  int64_t room() const;
  int64_t kept_at_shift(const TextRequest& request) const;
  void cut_prompt(Active& active) const;
  bool shift(Active& active);
  void shift_full();

  const SchedulerOptions options_;
  Session session_;
  const FinalNorm final_norm_;
  PrefixCache prefixes_;
  NgramDrafts ngrams_;
  StepPace pace_;
  const int64_t least_prefix_;  // Shorter common prefixes are evaluated again.
  // The device was given these pieces and chooses a token after each, which is not taken yet.
  // `open_rows_` counts the tokens of prompts that it has read since the last that was taken.
  std::vector<Piece> open_;
  int64_t open_rows_ = 0;
  int64_t prompt_rows_ = 0;  // The step that is measured reads so many tokens of prompts.
  std::deque<std::unique_ptr<Active>> waiting_;
  std::vector<std::unique_ptr<Active>> running_;  // They are in the order of admission.
  // A request was preempted; none is admitted until another one has ended and freed its pages.
  bool crowded_ = false;
  SchedulerCounts totals_;  // Only the thread that runs the steps uses it.

  mutable std::mutex mutex_;  // It guards what follows.
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Active>> added_;
  std::vector<uint64_t> cancelled_;
  std::vector<std::function<void()>> tasks_;
  uint64_t next_id_ = 1;
  int64_t unfinished_ = 0;
  uint64_t refused_ = 0;
  SchedulerCounts published_;
  bool stopping_ = false;
};

}  // namespace walsh
