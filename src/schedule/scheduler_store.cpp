// Exchanges kept prefixes with files, and shows the places of texts.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/failure.h"
#include "schedule/prefix_store.h"
#include "schedule/scheduler.h"

namespace walsh {
namespace {

// Shorter prefixes are not worth a file.
constexpr int64_t kLeastStored = 32;

}  // namespace

// Drops kept prefixes until there is room for a sequence of so many tokens; returns whether there
// is.
bool Scheduler::make_room_for(int64_t tokens) {
  const int64_t pages = session_.pages().shape().pages_for(tokens);
  const auto is_missing = [&] { return session_.pages().free_pages() < pages || is_full(); };
  while (is_missing() && drop_kept()) {
  }
  return !is_missing();
}

// Reads the prefix of a text from a file if that is longer than what is in memory.
void Scheduler::find_stored(Active& active) {
  if (active.searched || !shares_prefixes(active)) return;
  active.searched = true;
  const std::string& owner = active.request.owner;
  // Files have no images.
  std::span<const int32_t> tokens = active.tokens;
  if (const auto& images = active.request.images; !images.empty())
    tokens = tokens.first(static_cast<size_t>(images.front().position));
  const auto found =
      options_.store->find({tokens, owner}, known_prefix(active).common + kLeastStored);
  if (!found || std::ssize(found->tokens) > room()) return;
  if (!make_room_for(std::ssize(found->tokens))) return;
  // If it fails, for example because memory runs out, the text is evaluated.
  failure_of([&] {
    const bool read = options_.store->read(*found, [&](PrefixReader& reader) {
      take_restored({-1, found->tokens, owner, {}, -1}, reader);
    });
    if (read) ++totals_.restored;
  });
}

// Keeps a prefix with what is read of it.
void Scheduler::take_restored(PrefixCache::Entry entry, PrefixReader& reader) {
  for (const int32_t token : entry.tokens)
    if (token < 0 || token >= model().config.vocab)
      throw Error(ErrorCode::bad_input, "prefix", "a token is outside the vocabulary");
  entry.sequence = session_.restore(std::ssize(entry.tokens), reader);
  const auto failure = failure_of([&] { reader.finish(); });
  if (failure) {
    session_.close(entry.sequence);
    throw *failure;
  }
  for (const int64_t closed : prefixes_.keep(std::move(entry)))
    session_.close(closed);
}

// Has a prefix written that is dropped. Without `waits` it is lost where others wait to be written.
void Scheduler::store_prefix(const PrefixCache::Entry& entry, bool waits) {
  if (options_.store == nullptr || !entry.images.empty() || std::ssize(entry.tokens) < kLeastStored)
    return;
  const PrefixStore::Key key{entry.tokens, entry.owner};
  if (options_.store->has(key) || !(waits || options_.store->accepts())) return;
  failure_of([&] { options_.store->write(key, session_.save(entry.sequence)); });
}

void Scheduler::store_kept() {
  if (options_.store == nullptr) return;
  for (const PrefixCache::Entry& entry : prefixes_.entries())
    store_prefix(entry, true);
  options_.store->finish();
}

int64_t Scheduler::free_place(int64_t wanted) const {
  const auto taken = [&](int64_t place) {
    return std::any_of(running_.begin(), running_.end(),
                       [&](const auto& active) { return active->place == place; });
  };
  if (wanted >= 0 && wanted < slots() && !taken(wanted)) return wanted;
  int64_t place = 0;
  while (taken(place))
    ++place;
  return place;
}

void Scheduler::check_place(int64_t place) const {
  if (place >= 0 && place < slots()) return;
  throw Error(ErrorCode::usage, "id_slot",
              fmt::format("{} is none of the {} places", place, slots()));
}

std::vector<PlaceState> Scheduler::places() const {
  std::vector<PlaceState> all(static_cast<size_t>(slots()));
  for (const PrefixCache::Entry& entry : prefixes_.entries())
    if (entry.place >= 0) {
      PlaceState& state = all[static_cast<size_t>(entry.place)];
      state.tokens = entry.tokens;
      state.owner = entry.owner;
    }
  for (const auto& active : running_) {
    const std::span<const int32_t> tokens = active->tokens;
    // A device may be a token ahead.
    const auto evaluated = std::min(static_cast<size_t>(active->evaluated), tokens.size());
    all[static_cast<size_t>(active->place)] = {active->id, &active->request,
                                               tokens.first(evaluated), active->generated,
                                               active->request.owner};
  }
  return all;
}

PrefixStore& Scheduler::files_of_places() const {
  if (options_.store != nullptr) return *options_.store;
  throw Error(ErrorCode::usage, "slots", "there is no folder for their files: give --cache-dir");
}

PlaceFile Scheduler::save_place(int64_t place, const std::string& owner, const std::string& name) {
  check_place(place);
  PrefixStore& files = files_of_places();
  const PrefixCache::Entry* latest = nullptr;
  for (const PrefixCache::Entry& entry : prefixes_.entries())
    if (entry.place == place && entry.owner == owner && entry.images.empty()) latest = &entry;
  if (latest == nullptr)
    throw Error(ErrorCode::usage, "id_slot",
                fmt::format("no text of this key was kept at place {}", place));
  const uint64_t bytes =
      files.write_named(name, {latest->tokens, owner}, session_.save(latest->sequence));
  return {std::ssize(latest->tokens), bytes};
}

PlaceFile Scheduler::restore_place(int64_t place, const std::string& owner,
                                   const std::string& name) {
  check_place(place);
  const PrefixHead head =
      files_of_places().read_named(name, owner, [&](const PrefixHead& read, PrefixReader& reader) {
        if (!make_room_for(std::ssize(read.tokens)))
          throw Error(ErrorCode::limit, "slots", "running texts leave no room for it");
        take_restored({-1, read.tokens, owner, {}, place}, reader);
      });
  return {std::ssize(head.tokens), head.file_bytes()};
}

int64_t Scheduler::erase_place(int64_t place, const std::string& owner) {
  check_place(place);
  std::vector<int64_t> left;
  int64_t erased = 0;
  for (const PrefixCache::Entry& entry : prefixes_.entries()) {
    if (entry.place != place || entry.owner != owner) continue;
    left.push_back(entry.sequence);
    erased = std::ssize(entry.tokens);
  }
  for (const int64_t sequence : left)
    session_.close(prefixes_.take(sequence).sequence);
  return erased;
}

}  // namespace walsh
