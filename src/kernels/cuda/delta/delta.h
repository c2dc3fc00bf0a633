// Gated delta nets: the short convolution, and the delta rule for single rows and for prompts.
//
// A sequence has a state in a slot of the device's memory: for every layer the last rows that the
// convolution has read, then a matrix per value head, as they are behind its last position. Rows of
// a launch find position and sequence in device arrays, so that recorded launches can be replayed.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/delta/delta_places.h"

namespace walsh::cuda {

// What the delta net of one layer has in all slots.
struct DeltaMemory {
  float* slots = nullptr;
  int64_t slot_floats = 0;
  int64_t rows_at = 0;    // [taps][channels], by kept_place()
  int64_t states_at = 0;  // [value_heads][key_dim][value_dim]
};

// Throws internal for shapes that the kernels do not have.
void check_delta(const DeltaDims& dims);

struct ConvolveCall {
  DeltaDims dims;
  DeltaMemory memory;
  RowPlaces places;             // of the batch's rows; those of a sequence are neighbours
  const float* in = nullptr;    // [m][channels]
  float* out = nullptr;         // [m][channels]: silu of the convolution, queries and keys scaled
  float* decay = nullptr;       // [m][value_heads]: a becomes the logarithm of the decay
  float* strength = nullptr;    // [m][value_heads]: b becomes its sigmoid
  const float* taps = nullptr;  // [taps][channels], the newest position last
  const float* rate = nullptr;  // [value_heads]
  const float* bias = nullptr;  // [value_heads]
  const float* query_scale = nullptr;  // [key_dim]
  const float* key_scale = nullptr;    // [key_dim]
  int64_t m = 0;
};
// Rows that are the only ones of their sequence are left to delta_steps().
void convolve(const ConvolveCall& call, Stream stream);

// The rows of the convolution that row `row` of the batch and those in front of it leave behind, to
// slot `slot`. Slots of the rows' sequence are still as they were in front of the batch, or it is
// its own.
void keep_convolved(const ConvolveCall& call, int64_t row, int64_t slot, Stream stream);

// Rows [begin, end), each the only one of its sequence, in one launch: what convolve() does to a
// row, which the call's `out`, `decay` and `strength` do not get, then the delta rule. The slot
// gets the row and the state behind it. mixed[m][value_heads * value_dim]. What a slot holds and
// the layer's constants are read before the kernel in front has ended; the first kernel of a batch
// must have waited for those of the batches before.
void delta_steps(const ConvolveCall& call, float* mixed, int64_t begin, int64_t end, Stream stream);

struct DeltaCall {
  DeltaDims dims;
  DeltaMemory memory;
  RowPlaces places;
  const float* channels = nullptr;  // [m][channels], as convolve gives them
  const float* decay = nullptr;     // [m][value_heads], logarithms
  const float* strength = nullptr;  // [m][value_heads]
  float* out = nullptr;             // [m][value_heads * value_dim]
};

// Rows [begin, end) of the sequence in slot `slot`, the first of which is its position `position`;
// those before `skip` are not written. Chunks of kDeltaRows rows, from `begin` on, as matrices
// (kernels/ops.h, DeltaState).
struct DeltaRange {
  int64_t begin = 0, end = 0, skip = 0;
  int64_t slot = 0, position = 0;
};
void delta_rows(const DeltaCall& call, const DeltaRange& range, Stream stream);

}  // namespace walsh::cuda
