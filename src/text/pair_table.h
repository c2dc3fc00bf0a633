// Maps a pair of token ids to the merge that joins them, by a hash table with open addressing. The
// pairs come from a file, so their slots depend on a secret (io/keyed_hash.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "io/keyed_hash.h"

namespace walsh {

struct Merge {
  uint32_t rank;   // the smallest rank is merged first
  int32_t result;  // it is the id of the joined token
};

class PairTable {
 public:
  // `capacity` is the number of insertions that will follow.
  explicit PairTable(size_t capacity = 0, uint64_t secret = hash_secret())
      : slots_(std::bit_ceil(2 * capacity + 1)), secret_(secret) {}

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

  // Returns the largest number of slots that a search for a stored pair examines.
  size_t longest_search() const {
    size_t longest = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].key == kEmpty) continue;
      longest = std::max(longest, ((i - home_of(slots_[i].key)) & (slots_.size() - 1)) + 1);
    }
    return longest;
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

  size_t home_of(uint64_t key) const { return keyed_hash(key, secret_) & (slots_.size() - 1); }

  // Returns the slot of the key, or the empty slot where it belongs. At most half of the slots are
  // used.
  size_t place_of(uint64_t key) const {
    size_t place = home_of(key);
    while (slots_[place].key != key && slots_[place].key != kEmpty) {
      place = (place + 1) & (slots_.size() - 1);
    }
    return place;
  }

  std::vector<Slot> slots_;
  uint64_t secret_;
};

}  // namespace walsh
