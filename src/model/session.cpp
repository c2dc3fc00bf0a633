#include "model/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.h"
#include "base/stop.h"
#include "model/positions.h"

namespace walsh {
namespace {

int64_t rows_of(const SequenceTokens& item) {
  return std::max<int64_t>(1, static_cast<int64_t>(item.tokens.size()));
}

std::vector<Growth> growth_of(std::span<const SequenceTokens> batch) {
  std::vector<Growth> growth;
  for (const SequenceTokens& item : batch)
    growth.push_back({item.sequence, rows_of(item)});
  return growth;
}

}  // namespace

KvShape kv_shape(const Model& model, const SessionOptions& options) {
  // A model in two parts has pages of the CPU's size, each of which spans several pages of a GPU.
  const bool on_gpu = model.device.cuda && model.parts.empty();
  return kv_shape(model.config, model.cache, on_gpu ? kGpuPagePositions : kCpuPagePositions,
                  options);
}

Session::Session(const Model& model, const SessionOptions& options)
    : model_(model),
      pages_(kv_shape(model, options)),
      snapshots_(options.sequences, options.snapshots),
      recent_(options.sequences, options.revocable * options.revoking, options.snapshots),
      revocable_(options.revocable),
      recurrent_(is_recurrent(model.config)) {
  executor_ = make_executor(model, pages_, options);
  pages_.open();
}

int64_t Session::reachable(int64_t sequence, int64_t positions) const {
  if (!recurrent_ || positions < 0 || positions >= pages_.length(sequence)) return positions;
  return state_before(sequence, positions).position;
}

// Returns the last snapshot of a sequence at or before a position.
StateSnapshots::Snapshot Session::state_before(int64_t sequence, int64_t position) const {
  const StateSnapshots::Snapshot kept = snapshots_.find(sequence, position),
                                 recent = recent_.find(sequence, position);
  return recent.position > kept.position ? recent : kept;
}

void Session::drop_states(int64_t sequence, int64_t position) {
  snapshots_.truncate(sequence, position);
  recent_.truncate(sequence, position);
}

// Coded caches encode a bundle when the next one leaves the window. Tokens can be taken back up to
// there.
int64_t Session::revocable(int64_t sequence) const {
  const int64_t position = pages_.length(sequence);
  int64_t most = std::max<int64_t>(0, capacity() - position - 1);
  if (recurrent_) most = std::min(most, revocable_);
  if (!model_.cache.coded()) return most;
  const int64_t behind = position - std::clamp<int64_t>(model_.cache.window, 0, capacity());
  const int64_t of_bundle = behind < 0 ? behind : behind % kCacheBundle;
  return std::min(most, kCacheBundle - 1 - of_bundle);
}

int64_t Session::fork(int64_t sequence, int64_t positions) {
  const int64_t kept = reachable(sequence, positions);
  const int64_t copy = pages_.fork(sequence, kept);
  executor_->fork(sequence, copy);
  if (!recurrent_) return copy;
  const StateSnapshots::Snapshot snapshot = state_before(sequence, kept);
  const bool as_it_is = kept == pages_.length(sequence);
  snapshots_.share(sequence, copy, kept);
  if (kept > 0)
    executor_->copy_state(as_it_is ? static_cast<int32_t>(sequence) : snapshot.slot,
                          static_cast<int32_t>(copy));
  return copy;
}

void Session::close(int64_t sequence) {
  pages_.close(sequence);
  drop_states(sequence, -1);
}

void Session::truncate(int64_t positions, int64_t sequence) {
  const int64_t length = pages_.length(sequence), kept = reachable(sequence, positions);
  pages_.truncate(sequence, kept);
  if (!recurrent_ || kept == length) return;
  drop_states(sequence, kept);
  if (kept > 0)
    executor_->copy_state(state_before(sequence, kept).slot, static_cast<int32_t>(sequence));
}

void Session::reset() {
  for (int64_t s = 0; s < sequences(); ++s)
    if (pages_.is_open(s)) truncate(0, s);
}

void Session::check(std::span<const SequenceTokens> batch, bool chosen) const {
  std::vector<int64_t> seen;
  for (const SequenceTokens& item : batch) {
    position(item.sequence);  // This refuses a sequence that is not open.
    seen.push_back(item.sequence);
    if (item.tokens.empty() && !chosen) {
      throw Error(ErrorCode::usage, "tokens", "at least one token is needed");
    }
    if (item.logits < 0 || item.logits > (chosen ? 1 : rows_of(item))) {
      throw Error(ErrorCode::usage, "logits",
                  fmt::format("of {} of {} tokens", item.logits, rows_of(item)));
    }
    for (const int32_t token : item.tokens) {
      if (token >= 0 && token < model_.config.vocab) continue;
      throw Error(ErrorCode::usage, "token",
                  fmt::format("id {} is outside the vocabulary of {}", token, model_.config.vocab));
    }
    check_images(item);
  }
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice == seen.end()) return;
  throw Error(ErrorCode::usage, "sequence", fmt::format("{} is in a batch twice", *twice));
}

// Checks the streams of a batch: a model that joins needs one for each token, other models take
// none.
void Session::check_streams(std::span<const SequenceTokens> batch) const {
  const size_t width = model_.joins() ? static_cast<size_t>(model_.config.hidden) : 0;
  for (const SequenceTokens& item : batch) {
    if (item.streams.size() != item.tokens.size() * width)
      throw Error(ErrorCode::usage, "streams",
                  fmt::format("{} values for {} tokens, expected {} for each", item.streams.size(),
                              item.tokens.size(), width));
    if (item.read > 0 && !has_streams())
      throw Error(ErrorCode::usage, "streams", "the model's device does not give them out");
  }
}

// Checks that an image has whole rows, for no more layers than there are.
void Session::check_shape(const ImageRows& image) const {
  const int64_t hidden = model_.config.hidden, count = std::ssize(image.values);
  const int64_t most = 1 + std::ssize(model_.layers);
  if (image.rows < 1 || count == 0 || count % image.rows != 0 || image.width() % hidden != 0 ||
      image.width() / hidden > most)
    throw Error(
        ErrorCode::usage, "image",
        fmt::format("{} values for {} rows, expected {} for each and for each of at most {} "
                    "layers",
                    count, image.rows, hidden, most - 1));
  if (image.columns < 0 || (image.columns > 0 && image.rows % image.columns != 0))
    throw Error(ErrorCode::usage, "image",
                fmt::format("{} rows are no grid of {} columns", image.rows, image.columns));
}

void Session::check_images(std::span<const ImageRows> images) const {
  if (images.empty()) return;
  if (!takes_images())
    throw Error(ErrorCode::usage, "image",
                "only models that are on the CPU as a whole read images");
  for (const ImageRows& image : images) {
    check_shape(image);
    if (!image.together) continue;
    if (image.rows > max_rows())
      throw Error(ErrorCode::usage, "image",
                  fmt::format("has {} rows that see each other, at most {} are evaluated together",
                              image.rows, max_rows()));
    if (model_.cache.coded())
      throw Error(ErrorCode::usage, "image",
                  "its rows see each other, for which keys and values have to be f16");
  }
}

// Checks the images of an item. Rows that see each other have to be in one item.
void Session::check_images(const SequenceTokens& item) const {
  check_images(item.images);
  const int64_t begin = position(item.sequence), end = begin + std::ssize(item.tokens);
  for (const ImageRows& image : item.images) {
    const int64_t first = image.position, last = image.end();
    if (!image.together || last <= begin || first >= end) continue;
    if (first < begin || last > end)
      throw Error(ErrorCode::usage, "image",
                  fmt::format("its rows at positions {} to {} see each other, but only {} to {} "
                              "are evaluated",
                              first, last - 1, begin, end - 1));
  }
}

bool Session::fits(std::span<const SequenceTokens> batch) const {
  return pages_.fits(growth_of(batch));
}

void Session::reserve(std::span<const SequenceTokens> batch) {
  const std::vector<PageCopy> copies = pages_.reserve(growth_of(batch));
  if (!copies.empty()) executor_->copy_pages(copies);
}

std::vector<StateMark> Session::place_marks(std::span<const Run> runs,
                                            std::span<const KeptStates> kept) {
  std::vector<StateMark> placed;
  const auto place = [&](StateSnapshots& states, size_t run, int64_t rows) {
    const int64_t sequence = runs[run].sequence;
    const int32_t slot = states.add(sequence, runs[run].position + rows);
    // If there are more marks than slots, the earlier marks lose theirs.
    std::erase_if(placed, [&](const StateMark& mark) { return mark.slot == slot; });
    if (slot < 0) return;
    if (rows == 0) return executor_->copy_state(static_cast<int32_t>(sequence), slot);
    placed.push_back({run, rows, slot});
  };
  for (size_t i = 0; i < runs.size() && recurrent_; ++i) {
    const int64_t snapshot = kept[i].snapshot;
    if (snapshot >= 1 && snapshot <= runs[i].rows) place(snapshots_, i, snapshot);
    for (int64_t row = std::max<int64_t>(0, kept[i].revocable); row < runs[i].rows; ++row)
      if ((row == 0 || row != snapshot) && runs[i].position + row > 0) place(recent_, i, row);
  }
  return placed;
}

void Session::run(Batch batch, std::span<const KeptStates> kept) {
  const std::span<const Run> runs = batch.runs;
  if (runs.empty()) return;
  const std::vector<StateMark> placed = place_marks(runs, kept);
  batch.marks = placed;
  try {
    executor_->run(batch);
  } catch (...) {
    // The failed batch may have lost coded keys and values, left states half-way, and made
    // snapshots of rows that were not evaluated.
    const bool coded = model_.cache.coded();
    for (const Run& run : runs) {
      if (!coded && !recurrent_) break;
      drop_states(run.sequence, coded ? -1 : run.position);
      const StateSnapshots::Snapshot last = state_before(run.sequence, run.position);
      pages_.truncate(run.sequence, last.position);
      if (last.position > 0) executor_->copy_state(last.slot, static_cast<int32_t>(run.sequence));
    }
    throw;
  }
  for (const Run& run : runs)
    pages_.extend(run.sequence, run.rows);
}

// Puts items into batches that the device can take, and collects their logits.
class Session::Batcher {
 public:
  Batcher(Session& session, BatchSink sink, StreamSink streams)
      : session_(session), sink_(sink), stream_sink_(streams) {}

  void add(size_t index, const SequenceTokens& item) {
    const auto count = static_cast<int64_t>(item.tokens.size());
    for (int64_t begin = 0; begin < count;) {
      const int64_t most = session_.max_rows();
      const int64_t room = std::min(count - begin, most - static_cast<int64_t>(tokens_.size()));
      const int64_t m = whole_rows(item, room);
      if (m == 0) {
        finish();
        continue;
      }
      const auto part = item.tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(m));
      for (int64_t i = begin + std::max<int64_t>(0, count - item.read - begin); i < begin + m; ++i)
        read_.push_back({index, i, std::ssize(tokens_) + i - begin});
      place_images(item, m);
      tokens_.insert(tokens_.end(), part.begin(), part.end());
      if (!item.streams.empty()) {
        const auto given = item.streams.subspan(static_cast<size_t>(begin) * width(),
                                                static_cast<size_t>(m) * width());
        streams_.insert(streams_.end(), given.begin(), given.end());
      }
      const int64_t wanted = std::clamp<int64_t>(begin + m - (count - item.logits), 0, m);
      runs_.push_back({item.sequence, session_.position(item.sequence), m, wanted});
      shown_.push_back(item.images);
      kept_.push_back({item.snapshot - begin, count - item.revocable - begin});
      for (int64_t i = begin + m - wanted; i < begin + m; ++i)
        wanted_.push_back({index, i, 0});
      begin += m;
      prompts_ += m > 1 ? 1 : 0;
      if (begin < count || static_cast<int64_t>(tokens_.size()) == most ||
          prompts_ == session_.executor_->max_prompts())
        finish();
    }
  }

  void finish() {
    if (runs_.empty()) return;
    // Evaluation may stop here: between two batches all sequences are consistent. A GPU does not
    // check for requests to stop itself.
    if (behind_another_) check_stop();
    behind_another_ = true;
    Batch batch{tokens_, runs_};
    batch.streams = streams_;
    batch.images = images_;
    place_axes();
    batch.axes = axes_;
    if (!read_.empty()) batch.first_read = read_.front().row;
    session_.run(batch, kept_);
    Executor& executor = *session_.executor_;
    give_streams();
    const auto count = static_cast<int64_t>(wanted_.size());
    for (int64_t first = 0; first < count; first += executor.logit_rows()) {
      const int64_t n = std::min(executor.logit_rows(), count - first);
      if (first > 0) executor.logits(first, n);
      for (int64_t i = 0; i < n; ++i) {
        const Wanted& place = wanted_[static_cast<size_t>(first + i)];
        sink_(place.item, place.index, executor.logit_row(i));
      }
    }
    tokens_.clear();
    runs_.clear();
    shown_.clear();
    kept_.clear();
    wanted_.clear();
    read_.clear();
    streams_.clear();
    images_.clear();
    prompts_ = 0;
  }

 private:
  struct Wanted {
    size_t item;
    int64_t index, row;  // `index` counts in the item, `row` in the batch.
  };

  // Returns how many of the next `rows` rows of an item go into this batch. An image whose rows see
  // each other goes in as a whole, or not at all.
  int64_t whole_rows(const SequenceTokens& item, int64_t rows) const {
    const int64_t begin = session_.position(item.sequence), end = begin + rows;
    for (const ImageRows& image : item.images) {
      const int64_t first = image.position, last = image.end();
      if (image.together && first < end && end < last) return std::max<int64_t>(0, first - begin);
    }
    return rows;
  }

  // Adds the images in the next `rows` rows of an item to the batch.
  void place_images(const SequenceTokens& item, int64_t rows) {
    const int64_t begin = session_.position(item.sequence), end = begin + rows;
    for (const ImageRows& image : item.images) {
      const int64_t first = std::max(begin, image.position), last = std::min(end, image.end());
      if (first >= last) continue;
      images_.push_back({std::ssize(tokens_) + first - begin, last - first,
                         image.values.data() + (first - image.position) * image.width(),
                         image.width(), image.together});
    }
  }

  // Finds where a rope with three axes has the rows of the batch, if a sequence has grids.
  void place_axes() {
    axes_.clear();
    const auto is_grid = [](const ImageRows& image) { return image.columns > 0; };
    const bool grids = std::ranges::any_of(
        shown_, [&](const auto& images) { return std::ranges::any_of(images, is_grid); });
    for (size_t i = 0; i < runs_.size() && grids; ++i)
      for (int64_t row = 0; row < runs_[i].rows; ++row)
        axes_.push_back(axis_positions(shown_[i], runs_[i].position + row));
  }

  // Hands out the streams that callers want. Neighbouring rows are read at once.
  void give_streams() {
    std::vector<float> rows;
    for (size_t begin = 0, end; begin < read_.size(); begin = end) {
      for (end = begin + 1; end < read_.size() && read_[end].row == read_[end - 1].row + 1;)
        ++end;
      rows.resize((end - begin) * width());
      session_.executor_->read_streams(read_[begin].row, static_cast<int64_t>(end - begin),
                                       rows.data());
      for (size_t i = begin; i < end; ++i)
        stream_sink_(read_[i].item, read_[i].index,
                     std::span<const float>(rows).subspan((i - begin) * width(), width()));
    }
  }

  size_t width() const { return static_cast<size_t>(session_.model_.config.hidden); }

  Session& session_;
  BatchSink sink_;
  StreamSink stream_sink_;
  std::vector<int32_t> tokens_;
  std::vector<Run> runs_;
  std::vector<KeptStates> kept_;
  std::vector<Wanted> wanted_;  // Callers want the logits of these rows.
  std::vector<Wanted> read_;    // Callers want the streams of these rows.
  std::vector<float> streams_;  // A model that joins reads these.
  std::vector<PlacedRows> images_;
  std::vector<std::span<const ImageRows>> shown_;  // These are the images of each run's sequence.
  std::vector<AxisPositions> axes_;                // See Batch.
  int64_t prompts_ = 0;                            // It counts the runs of several rows.
  bool behind_another_ = false;
};

void Session::evaluate(std::span<const SequenceTokens> batch, BatchSink sink) {
  evaluate(batch, sink, [](size_t, int64_t, std::span<const float>) {});
}

void Session::evaluate(std::span<const SequenceTokens> batch, BatchSink sink, StreamSink streams) {
  check(batch, false);
  check_streams(batch);
  reserve(batch);
  Batcher batcher(*this, sink, streams);
  for (size_t i = 0; i < batch.size(); ++i)
    batcher.add(i, batch[i]);
  batcher.finish();
}

void Session::forward(std::span<const int32_t> tokens, LogitSink sink, int64_t first_logit,
                      int64_t sequence) {
  if (tokens.empty()) return;
  check_stop();
  const auto count = static_cast<int64_t>(tokens.size());
  const SequenceTokens item{sequence, tokens, std::clamp<int64_t>(count - first_logit, 0, count)};
  evaluate({&item, 1},
           [&](size_t, int64_t index, std::span<const float> logits) { sink(index, logits); });
}

void Session::start_sampling(const SamplerOptions& options, std::span<const int32_t> history,
                             int64_t sequence) {
  position(sequence);  // This refuses a sequence that is not open.
  executor_->start_sampling(sequence, options, history);
}

void Session::submit(std::span<const SequenceTokens> batch) {
  check(batch, true);
  int64_t rows = 0, choices = 0, prompts = 0;
  for (const SequenceTokens& item : batch) {
    rows += rows_of(item);
    choices += item.logits;
    prompts += item.tokens.size() > 1 ? 1 : 0;
  }
  if ((batch.size() > 1 && rows > max_rows()) || choices > executor_->logit_rows() ||
      prompts > max_prompts()) {
    throw Error(
        ErrorCode::usage, "batch",
        fmt::format("{} tokens of {} prompts and {} choices are more than the {}, {} and "
                    "{} that can be evaluated at once",
                    rows, prompts, choices, max_rows(), max_prompts(), executor_->logit_rows()));
  }
  reserve(batch);
  std::vector<int32_t> tokens;
  std::vector<Run> runs;
  std::vector<KeptStates> kept;
  for (const SequenceTokens& item : batch) {
    std::span<const int32_t> rest = item.tokens;
    int64_t mark = item.snapshot;
    for (; static_cast<int64_t>(rest.size()) > max_rows();
         rest = rest.subspan(static_cast<size_t>(max_rows()))) {
      const Run part{item.sequence, position(item.sequence), max_rows(), 0};
      const KeptStates marked{mark, part.rows};
      run({rest.first(static_cast<size_t>(max_rows())), {&part, 1}}, {&marked, 1});
      check_stop();
      mark -= max_rows();
    }
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    if (rest.empty()) tokens.push_back(kChosenToken);
    const auto m = std::max<int64_t>(1, static_cast<int64_t>(rest.size()));
    runs.push_back({item.sequence, position(item.sequence), m, item.logits});
    kept.push_back({mark, m});
  }
  run({tokens, runs, choices > 0}, kept);
}

}  // namespace walsh
