// Which phases of a step may follow each other without a barrier.
//
// A block goes on as soon as the values that it needs are there, so blocks are in different phases.
// An array may be written again only when no block still reads it. That can be known: whoever has a
// complete result knows that all blocks have come so far, because each block has a part of every
// product, and gives its part away only after all of its inputs have been read, by itself or by the
// block that makes them with it (persistent/pair.cuh). Results of a product in several arrays are
// complete together.
#pragma once

#include <span>
#include <vector>

#include "base/cuda/device.h"

namespace walsh::cuda {

inline constexpr size_t kPhaseArrays = 3;  // that a phase reads or writes at most

// Values that phases hand over, floats or packets.
struct ExchangeArray {
  Buffer exchange;  // persistent/exchange.cuh
  int64_t count = 0;
  int writes = 0;    // of a program
  int written = -1;  // phase that wrote it last
  int read = -1;     // phase that read it last
  // Of the product that wrote it last, which say what block has what.
  int first_tile = 0, tiles = 0;
  bool uneven = false;  // its tiles differ in weight
};

class PhaseOrder {
 public:
  enum class Work {
    matmul,  // needs all of its inputs, every block writes some of its results
    part,    // of the inputs and results only, some blocks do nothing
  };

  // Adds a phase, which reads the arrays of `in` as the last writes before it leave them. False,
  // and nothing is added, if a block might still read what it writes.
  bool add(Work work, std::span<ExchangeArray* const> in, std::span<ExchangeArray* const> out);
  // Whether add() would do so.
  bool may_add(Work work, std::span<ExchangeArray* const> in,
               std::span<ExchangeArray* const> out) const;

 private:
  // Phases up to which all blocks have read all that they read, ...
  struct Phase {
    int writing;   // ... when a block writes a result of this phase
    int complete;  // ... when all results of this phase are there
    int64_t results;
  };

  Phase next(Work work, std::span<ExchangeArray* const> in) const;

  std::vector<Phase> phases_;
};

}  // namespace walsh::cuda
