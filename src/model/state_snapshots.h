// Which slots of a device's memory hold the states of recurrent layers: one for every sequence, and
// snapshots of earlier positions, to which a sequence can be taken back and which others that begin
// alike can share. The same bookkeeping for every device.
#pragma once

#include <cstdint>
#include <vector>

namespace walsh {

class StateSnapshots {
 public:
  struct Snapshot {
    int64_t position = 0;
    int32_t slot = -1;  // -1: the state in front of the first token, which is in no slot
  };

  // Slots [0, sequences) belong to the sequences, the `snapshots` ones behind them to snapshots.
  StateSnapshots(int64_t sequences, int64_t snapshots);

  // The last snapshot of a sequence at or in front of a position.
  Snapshot find(int64_t sequence, int64_t position) const;
  // A slot for the state of a sequence at this position; the snapshot that was not used for the
  // longest time gives way. -1 if there is no room for any, or it has one there.
  int32_t add(int64_t sequence, int64_t position);
  // Those up to a position are kept; the last of them counts as used.
  void truncate(int64_t sequence, int64_t position);
  // Sequence `to`, which has none, shares those of `from` up to a position.
  void share(int64_t from, int64_t to, int64_t position);

 private:
  struct Slot {
    int64_t users = 0;
    uint64_t used = 0;  // when, in steps of clock_
  };

  Slot& slot(const Snapshot& snapshot);
  int32_t take();
  void use(int64_t sequence);

  int64_t sequences_;
  uint64_t clock_ = 0;
  std::vector<Slot> slots_;                     // of snapshots
  std::vector<std::vector<Snapshot>> entries_;  // per sequence, by position
};

}  // namespace walsh
