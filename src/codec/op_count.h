// Counts how much arithmetic something takes, independent of any machine.
#pragma once

#include <cstdint>

namespace walsh {

struct OpCount {
  uint64_t multiplications = 0, additions = 0, lookups = 0;
  uint64_t transforms = 0;  // It counts rotations of activations at run time.

  OpCount& operator+=(const OpCount& other) {
    multiplications += other.multiplications;
    additions += other.additions;
    lookups += other.lookups;
    transforms += other.transforms;
    return *this;
  }
  bool operator==(const OpCount&) const = default;
};

}  // namespace walsh
