// Says how the blocks of a step divide its work: which phases may follow each other without a
// barrier, and which tiles of a product each block has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cuda/device.h"

namespace walsh::cuda {

inline constexpr size_t kPhaseArrays = 3;  // A phase reads or writes at most this many arrays.

// Describes values that one phase hands to another, as floats or packets.
struct ExchangeArray {
  Buffer exchange;  // persistent/exchange.cuh explains its form.
  int64_t count = 0;
  int writes = 0;    // This many phases of the program write it.
  int written = -1;  // It is the last phase that wrote it.
  int read = -1;     // It is the last phase that read it.
  // The product that wrote it last has these tiles. They determine which block holds which values.
  int first_tile = 0, tiles = 0;
  bool uneven = false;  // If true, tiles cost different amounts of time.
};

// Decides which phases of a step may follow each other without a barrier.
//
// A block goes on as soon as the values that it needs have arrived, so blocks are in different
// phases at one time. An array may be overwritten only when no block still reads it. This can be
// derived: a block that has a complete result knows how far all other blocks have come, because
// each block computes a part of every product, and publishes that part only after all inputs have
// been read, by itself or by the block that makes them with it (PairInputs in
// persistent/exchange.cuh). If a product writes several arrays, they are complete together.
class PhaseOrder {
 public:
  enum class Work {
    // Needs all of its inputs, and every block writes some of the results.
    matmul,
    // Needs only parts of its inputs and results, and some blocks do nothing.
    part,
  };

  // Adds a phase, which reads the arrays of `in` as the last write before it left them. Returns
  // false, and adds nothing, if a block might still read what the phase writes.
  bool add(Work work, std::span<ExchangeArray* const> in, std::span<ExchangeArray* const> out);
  // Returns what add() would return, and adds nothing.
  bool may_add(Work work, std::span<ExchangeArray* const> in,
               std::span<ExchangeArray* const> out) const;

 private:
  // Holds the last phase whose inputs all blocks have read at two times: when a block writes a
  // result of this phase (`writing`), and when all of its results are there (`complete`).
  struct Phase {
    int writing;
    int complete;
    int64_t results;
  };

  Phase next(Work work, std::span<ExchangeArray* const> in) const;

  std::vector<Phase> phases_;
};

// Describes consecutive tiles of equal weight. The weight is the cost of one tile in any unit.
struct TileRun {
  int tiles = 0;
  int weight = 1;
};

// Returns the first tile of each of `blocks` blocks, and at the end the number of all tiles. Each
// block gets a range of at least one tile, and the heaviest range is as light as possible. Tiles of
// equal weight are divided as evenly as possible; the first blocks have one more. There must be at
// least as many tiles as blocks.
std::vector<int> share_tiles(std::span<const TileRun> runs, int blocks);

}  // namespace walsh::cuda
