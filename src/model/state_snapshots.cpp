#include "model/state_snapshots.h"

#include <algorithm>

namespace walsh {

StateSnapshots::StateSnapshots(int64_t sequences, int64_t snapshots, int64_t skipped)
    : first_slot_(sequences + skipped),
      slots_(static_cast<size_t>(snapshots)),
      entries_(static_cast<size_t>(sequences)) {}

StateSnapshots::Slot& StateSnapshots::slot(const Snapshot& snapshot) {
  return slots_[static_cast<size_t>(snapshot.slot - first_slot_)];
}

StateSnapshots::Snapshot StateSnapshots::find(int64_t sequence, int64_t position) const {
  Snapshot found;
  for (const Snapshot& snapshot : entries_[static_cast<size_t>(sequence)])
    if (snapshot.position <= position) found = snapshot;
  return found;
}

// Returns a slot for a new snapshot. If it held one, all sequences forget that snapshot.
int32_t StateSnapshots::take() {
  const auto oldest =
      std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
        if ((a.users == 0) != (b.users == 0)) return a.users == 0;
        return a.used < b.used;
      });
  const auto number = static_cast<int32_t>(first_slot_ + (oldest - slots_.begin()));
  for (auto& entries : entries_)
    std::erase_if(entries, [&](const Snapshot& snapshot) { return snapshot.slot == number; });
  *oldest = {};
  return number;
}

int32_t StateSnapshots::add(int64_t sequence, int64_t position) {
  if (slots_.empty() || find(sequence, position).position == position) return -1;
  const Snapshot added{position, take()};
  slot(added) = {1, ++clock_};
  auto& entries = entries_[static_cast<size_t>(sequence)];
  const auto behind = std::find_if(entries.begin(), entries.end(), [&](const Snapshot& snapshot) {
    return snapshot.position > position;
  });
  entries.insert(behind, added);
  return added.slot;
}

void StateSnapshots::use(int64_t sequence) {
  const auto& entries = entries_[static_cast<size_t>(sequence)];
  if (!entries.empty()) slot(entries.back()).used = ++clock_;
}

void StateSnapshots::truncate(int64_t sequence, int64_t position) {
  auto& entries = entries_[static_cast<size_t>(sequence)];
  while (!entries.empty() && entries.back().position > position) {
    --slot(entries.back()).users;
    entries.pop_back();
  }
  use(sequence);
}

void StateSnapshots::share(int64_t from, int64_t to, int64_t position) {
  for (const Snapshot& snapshot : entries_[static_cast<size_t>(from)]) {
    if (snapshot.position > position) break;
    ++slot(snapshot).users;
    entries_[static_cast<size_t>(to)].push_back(snapshot);
  }
  use(to);
}

}  // namespace walsh
