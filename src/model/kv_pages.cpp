#include "model/kv_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/positions.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int64_t kMaxSequences = 1024;
// No memory holds this many pages. The limit exists because the lists of page numbers take memory
// before any page does.
constexpr int64_t kMaxPages = int64_t{1} << 24;

}  // namespace

KvShape KvShape::in_pages_of(int64_t positions) const {
  KvShape smaller = *this;
  smaller.page_positions = positions;
  smaller.pages = pages * (page_positions / positions);
  return smaller;
}

KvShape kv_shape(const ModelConfig& config, const CacheTypes& types, int64_t page_positions,
                 const SessionOptions& options) {
  if (options.sequences < 1 || options.sequences > kMaxSequences) {
    throw Error(ErrorCode::usage, "sequences",
                fmt::format("{} asked for, expected 1 to {}", options.sequences, kMaxSequences));
  }
  if (options.cache_positions < 0) {
    throw Error(ErrorCode::usage, "KV cache",
                fmt::format("{} positions asked for", options.cache_positions));
  }
  KvShape shape;
  shape.capacity = choose_positions(config, options.max_positions);
  shape.sequences = options.sequences;
  shape.page_positions = page_positions;
  if (types.coded())
    shape.rewritten = std::clamp<int64_t>(types.window, 0, shape.capacity) + int64_t{kCacheBundle};
  const int64_t most = options.sequences * shape.pages_per_sequence();
  const int64_t positions = std::min(options.cache_positions, options.sequences * shape.capacity);
  shape.pages = positions == 0 ? most : std::clamp(shape.pages_for(positions), int64_t{1}, most);
  if (shape.pages > kMaxPages) {
    throw Error(ErrorCode::limit, "KV cache",
                fmt::format("{} texts of {} positions are more than can be addressed",
                            options.sequences, shape.capacity));
  }
  return shape;
}

KvPages::KvPages(const KvShape& shape)
    : shape_(shape),
      sequences_(static_cast<size_t>(shape.sequences)),
      users_(static_cast<size_t>(shape.pages)) {
  for (int64_t page = shape.pages; page-- > 0;)
    free_.push_back(static_cast<int32_t>(page));
}

bool KvPages::is_open(int64_t sequence) const {
  return sequence >= 0 && sequence < shape_.sequences &&
         sequences_[static_cast<size_t>(sequence)].open;
}

const KvPages::Sequence& KvPages::at(int64_t sequence) const {
  if (!is_open(sequence)) {
    throw Error(ErrorCode::usage, "sequence",
                fmt::format("{} is not one of the open sequences", sequence));
  }
  return sequences_[static_cast<size_t>(sequence)];
}

KvPages::Sequence& KvPages::at(int64_t sequence) {
  return const_cast<Sequence&>(std::as_const(*this).at(sequence));
}

int64_t KvPages::length(int64_t sequence) const {
  return at(sequence).length;
}

std::span<const int32_t> KvPages::pages(int64_t sequence) const {
  return at(sequence).pages;
}

int64_t KvPages::open() {
  for (int64_t s = 0; s < shape_.sequences; ++s) {
    Sequence& sequence = sequences_[static_cast<size_t>(s)];
    if (sequence.open) continue;
    sequence.open = true;
    return s;
  }
  throw Error(ErrorCode::limit, "sequences",
              fmt::format("all {} of them are in use", shape_.sequences));
}

int64_t KvPages::fork(int64_t sequence, int64_t positions) {
  if (positions < 0 || positions > length(sequence)) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("cannot share {} of {} tokens", positions, length(sequence)));
  }
  const int64_t copy = open();
  const Sequence& from = at(sequence);
  Sequence& to = at(copy);
  to.length = positions;
  to.pages.assign(from.pages.begin(), from.pages.begin() + shape_.pages_for(positions));
  for (const int32_t page : to.pages)
    ++users_[static_cast<size_t>(page)];
  return copy;
}

void KvPages::close(int64_t sequence) {
  Sequence& closed = at(sequence);
  shrink(closed, 0);
  closed.open = false;
}

void KvPages::truncate(int64_t sequence, int64_t positions) {
  Sequence& kept = at(sequence);
  if (positions < 0 || positions > kept.length) {
    throw Error(ErrorCode::usage, "context",
                fmt::format("cannot keep {} of {} tokens", positions, kept.length));
  }
  shrink(kept, positions);
}

void KvPages::shrink(Sequence& sequence, int64_t positions) {
  const auto pages = static_cast<size_t>(shape_.pages_for(positions));
  while (sequence.pages.size() > pages) {
    release(sequence.pages.back());
    sequence.pages.pop_back();
  }
  sequence.length = positions;
}

// Returns the number of the first page that new positions of a sequence are written to.
int64_t KvPages::first_written(const Sequence& sequence) const {
  return std::max<int64_t>(0, sequence.length - shape_.rewritten) / shape_.page_positions;
}

// Returns how many free pages growth takes, for new positions and for copies of shared pages. If
// only growing sequences share a page, the last of them keeps the original.
int64_t KvPages::needed(std::span<const Growth> growth) const {
  int64_t count = 0;
  std::map<int32_t, int32_t> writers;
  for (const Growth& more : growth) {
    const Sequence& sequence = at(more.sequence);
    const auto have = static_cast<int64_t>(sequence.pages.size());
    count += std::max<int64_t>(0, shape_.pages_for(sequence.length + more.rows) - have);
    for (int64_t i = first_written(sequence); i < have; ++i)
      ++writers[sequence.pages[static_cast<size_t>(i)]];
  }
  for (const auto& [page, writing] : writers)
    count += std::min(writing, users_[static_cast<size_t>(page)] - 1);
  return count;
}

std::vector<PageCopy> KvPages::reserve(std::span<const Growth> growth) {
  for (const Growth& more : growth) {
    const int64_t used = length(more.sequence);
    if (more.rows <= shape_.capacity - used) continue;
    throw Error(ErrorCode::usage, "context",
                fmt::format("{} more tokens do not fit: {} of {} positions are used", more.rows,
                            used, shape_.capacity));
  }
  const int64_t count = needed(growth);
  if (count > free_pages()) {
    throw Error(ErrorCode::limit, "KV cache",
                fmt::format("{} more pages of {} positions are needed, {} of {} are free", count,
                            shape_.page_positions, free_pages(), shape_.pages));
  }
  std::vector<PageCopy> copies;
  for (const Growth& more : growth) {
    Sequence& sequence = at(more.sequence);
    for (auto i = static_cast<size_t>(first_written(sequence)); i < sequence.pages.size(); ++i) {
      int32_t& page = sequence.pages[i];
      if (users_[static_cast<size_t>(page)] == 1) continue;
      const int32_t own = take();
      copies.push_back({page, own});
      release(page);
      page = own;
    }
    while (static_cast<int64_t>(sequence.pages.size()) <
           shape_.pages_for(sequence.length + more.rows))
      sequence.pages.push_back(take());
  }
  return copies;
}

void KvPages::extend(int64_t sequence, int64_t rows) {
  at(sequence).length += rows;
}

int32_t KvPages::take() {
  const int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<size_t>(page)] = 1;
  return page;
}

void KvPages::release(int32_t page) {
  if (--users_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

}  // namespace walsh
