// Solves the multiple-choice knapsack of bit allocation. It chooses one format per tensor, with the
// least total damage within a budget of bytes.
//
// The solution is exact, by dynamic programming over sizes (Kellerer, Pferschy & Pisinger 2004,
// chapter 11). The size of a choice counts from the item's smallest choice. These differences are
// counted in units of their greatest common divisor, so that nothing is rounded; if that needed
// more than kMaxUnits units, a larger unit is used and differences are rounded up, so that the
// budget holds in any case.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace walsh {

struct Choice {
  uint64_t bytes = 0;
  double damage = 0;  // it is finite, and less is better
};

struct KnapsackSolution {
  std::vector<int> picks;  // each item has the index of its choice
  uint64_t bytes = 0;
  double damage = 0;
  uint64_t unit = 1;  // sizes were counted in units of this many bytes
};

inline constexpr uint64_t kMaxUnits = 1 << 17;

// Returns the picks of least total damage whose total size is at most `budget`. Of equally good
// ones it takes the smallest, then the first in the order of choices. Every item has at least one
// choice. Throws limit naming `where` and the least size if nothing fits.
KnapsackSolution solve_knapsack(std::span<const std::vector<Choice>> items, uint64_t budget,
                                const char* where);

}  // namespace walsh
