// Assigns the slots of a device's memory that hold the states of recurrent layers: one for every
// sequence, and snapshots of earlier positions. A sequence can be taken back to a snapshot, and
// other sequences with the same prefix can share it. This is the same for every device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace walsh {

class StateSnapshots {
 public:
  struct Snapshot {
    int64_t position = 0;
    int32_t slot = -1;  // -1: the state before the first token, which needs no slot
  };

  // Slots [0, sequences) belong to the sequences; the `snapshots` slots after them, and after
  // `skipped` others, hold snapshots.
  StateSnapshots(int64_t sequences, int64_t snapshots, int64_t skipped = 0);

  // Returns the last snapshot of a sequence at or before a position.
  Snapshot find(int64_t sequence, int64_t position) const;
  // Returns the snapshots of a sequence, ordered by position.
  std::span<const Snapshot> of(int64_t sequence) const {
    return entries_[static_cast<size_t>(sequence)];
  }
  // Returns a slot for the state of a sequence at this position; it replaces the least recently
  // used snapshot. Returns -1 if there is room for none, or if the sequence has a snapshot at this
  // position.
  int32_t add(int64_t sequence, int64_t position);
  // Keeps the snapshots up to a position; the last of them counts as used now.
  void truncate(int64_t sequence, int64_t position);
  // Lets sequence `to`, which has no snapshots, share those of `from` up to a position.
  void share(int64_t from, int64_t to, int64_t position);

 private:
  struct Slot {
    int64_t users = 0;
    uint64_t used = 0;  // It was last used at this time of clock_.
  };

  Slot& slot(const Snapshot& snapshot);
  int32_t take();
  void use(int64_t sequence);

  int64_t first_slot_;
  uint64_t clock_ = 0;
  std::vector<Slot> slots_;  // Snapshots have these.
  // Each sequence has a list in the order of positions.
  std::vector<std::vector<Snapshot>> entries_;
};

}  // namespace walsh
