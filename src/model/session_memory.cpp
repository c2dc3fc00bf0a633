// Saves what a session holds of a sequence, and restores it.
#include <algorithm>

#include "model/session.h"

namespace walsh {
namespace {

// So many of the latest snapshots of a sequence are saved. Conversations return to the last one,
// which stands before the end of their prompt.
constexpr int64_t kSavedSnapshots = 2;

Error damaged() {
  return {ErrorCode::bad_input, "saved sequence", "it does not fit to this model and cache"};
}

}  // namespace

std::vector<std::byte> Session::save(int64_t sequence) {
  const int64_t positions = position(sequence);
  size_t size = 0;
  visit(sequence, positions, false, [&](std::span<std::byte> part) { size += part.size(); });
  std::vector<std::byte> saved;
  saved.reserve(size);
  visit(sequence, positions, false,
        [&](std::span<std::byte> part) { saved.insert(saved.end(), part.begin(), part.end()); });
  return saved;
}

int64_t Session::restore(int64_t positions, MemoryVisitor read) {
  const int64_t sequence = pages_.open();
  try {
    const Growth growth{sequence, positions};
    pages_.reserve({&growth, 1});
    visit(sequence, positions, true, read);
    pages_.extend(sequence, positions);
  } catch (...) {
    close(sequence);
    throw;
  }
  return sequence;
}

void Session::visit(int64_t sequence, int64_t positions, bool restores, MemoryVisitor visit) {
  if (recurrent_) visit_states(sequence, positions, restores, visit);
  executor_->visit_sequence(sequence, positions, restores, visit);
}

// Visits the position of each snapshot with its state, and at last the state of the sequence with
// the number of its tokens, where nothing follows.
void Session::visit_states(int64_t sequence, int64_t positions, bool restores,
                           MemoryVisitor visit) {
  const auto here = static_cast<int32_t>(sequence);
  if (!restores) {
    const auto all = snapshots_.of(sequence);
    const auto end = std::find_if(all.begin(), all.end(), [&](const StateSnapshots::Snapshot& s) {
      return s.position >= positions;
    });
    for (auto it = end - std::min<int64_t>(kSavedSnapshots, end - all.begin()); it != end; ++it) {
      int64_t position = it->position;
      visit_elements(visit, &position, 1);
      executor_->visit_state(it->slot, visit);
    }
    visit_elements(visit, &positions, 1);
    return executor_->visit_state(here, visit);
  }
  for (int64_t last = 0;;) {
    int64_t position = 0;
    visit_elements(visit, &position, 1);
    if (position <= last || position > positions) throw damaged();
    // The state is put where the sequence has its own, which comes last.
    executor_->visit_state(here, visit);
    if (position == positions) return;
    last = position;
    const int32_t slot = snapshots_.add(sequence, position);
    if (slot >= 0) executor_->copy_state(here, slot);
  }
}

}  // namespace walsh
