// A hash table from a pair of token ids to the merge that joins them (open addressing).
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace walsh {

struct Merge {
  uint32_t rank;   // smaller merges first
  int32_t result;  // id of the joined token
};

class PairTable {
 public:
  // `capacity`: the number of insertions to come.
  explicit PairTable(size_t capacity = 0)
      : slots_(std::bit_ceil(2 * capacity + 1)), shift_(64 - std::countr_zero(slots_.size())) {}

  // Replaces an earlier entry for the same pair; ids must not be negative.
  void insert(int32_t left, int32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    Slot& slot = slots_[place_of(key)];
    slot = {key, merge};
  }

  const Merge* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    const Slot& slot = slots_[place_of(key)];
    return slot.key == key ? &slot.merge : nullptr;
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };

  static uint64_t key_of(int32_t left, int32_t right) {
    return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
  }

  // The slot of the key, or the empty slot where it would go. At most half of the slots are used.
  size_t place_of(uint64_t key) const {
    const uint64_t mixed = (key ^ (key >> 29)) * 0x9E3779B97F4A7C15u;
    size_t place = shift_ == 64 ? 0 : static_cast<size_t>(mixed >> shift_);
    while (slots_[place].key != key && slots_[place].key != kEmpty) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }

  std::vector<Slot> slots_;
  int shift_;
};

}  // namespace walsh
