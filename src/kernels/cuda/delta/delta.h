// Computes recurrent layers: the short convolution of gated delta nets and their delta rule, for
// single rows and for prompts, and short convolutions between gates.
//
// A sequence has a slot of device memory: for every layer the last rows that the convolution has
// read, followed in a delta net by a state matrix per value head, as of its last position. Rows of
// a launch find position and sequence in device arrays, so that recorded launches can be replayed.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/delta/delta_places.h"

namespace walsh::cuda {

// Describes the slots of one recurrent layer.
struct DeltaMemory {
  float* slots = nullptr;
  int64_t slot_floats = 0;
  int64_t rows_at = 0;    // Its shape is [taps][channels], indexed by kept_place().
  int64_t states_at = 0;  // Its shape is [value_heads][key_dim][value_dim].
};

// Throws internal for shapes that the kernels do not support.
void check_delta(const DeltaDims& dims);

struct ConvolveCall {
  DeltaDims dims;
  DeltaMemory memory;
  RowPlaces places;           // In the batch, the rows of a sequence are neighbours.
  const float* in = nullptr;  // Its shape is [m][channels].
  // It has the shape [m][channels]: silu of the convolution, with queries and keys scaled unless
  // the net is additive.
  float* out = nullptr;
  // It has the shape [m][value_heads]: a on input, the logarithm of the decay on output.
  float* decay = nullptr;
  // It has the shape [m][value_heads]: b on input, the strength of the update on output.
  float* strength = nullptr;
  // Its shape is [taps][channels], with the newest position last.
  const float* taps = nullptr;
  const float* rate = nullptr;         // Its shape is [value_heads].
  const float* bias = nullptr;         // Its shape is [value_heads].
  const float* query_scale = nullptr;  // Its shape is [key_dim].
  const float* key_scale = nullptr;    // Its shape is [key_dim].
  // These are for additive nets. The first is [channels] or null, the second [value_heads].
  const float *channel_bias = nullptr, *skip = nullptr;
  float least_strength = 0, most_strength = 0;
  int64_t m = 0;
};
// Computes the convolution of several rows of a sequence. It skips rows that are the only ones of
// their sequence, which delta_steps() handles.
void convolve(const ConvolveCall& call, Stream stream);

// Writes to slot `slot` the rows that a convolution after row `row` of the batch will read. The
// slots of the rows' sequence must still have their content from before the batch, unless `slot` is
// its own.
void keep_convolved(const ConvolveCall& call, int64_t row, int64_t slot, Stream stream);

// Computes out = after * (bias + convolution of before * in) for m rows of `channels` values each.
struct GatedConvolveCall {
  int channels = 0, taps = 0;
  DeltaMemory memory;  // It keeps rows of before * in, and has no states.
  RowPlaces places;    // In the batch, the rows of a sequence are neighbours.
  const float *in = nullptr, *before = nullptr, *after = nullptr;
  float* out = nullptr;
  // Its shape is [taps][channels], with the newest position last.
  const float* weights = nullptr;
  const float* bias = nullptr;  // Its shape is [channels]; null: nothing is added.
  int64_t m = 0;
};
// Also keeps rows that are the only ones of their sequence; of several rows of a sequence,
// keep_convolved() keeps the last ones.
void convolve(const GatedConvolveCall& call, Stream stream);
// Does what keep_convolved() does after delta nets.
void keep_convolved(const GatedConvolveCall& call, int64_t row, int64_t slot, Stream stream);

// Takes rows [begin, end), each the only one of its sequence, in one launch: convolve() (without
// writing the call's `out`, `decay` and `strength`), then the delta rule. It writes
// mixed[m][value_heads * value_dim] and updates the slot to the state after the row. The slots and
// the layer's constants are read before the preceding kernel has ended; the first kernel of a batch
// must therefore wait for the batches before.
void delta_steps(const ConvolveCall& call, float* mixed, int64_t begin, int64_t end, Stream stream);

struct DeltaCall {
  DeltaDims dims;
  DeltaMemory memory;
  RowPlaces places;
  const float* channels = nullptr;  // Its shape is [m][channels]; convolve() has written it.
  const float* decay = nullptr;     // Its shape is [m][value_heads]; it has logarithms.
  const float* strength = nullptr;  // Its shape is [m][value_heads].
  float* out = nullptr;             // Its shape is [m][value_heads * value_dim].
  const float* skip = nullptr;      // Its shape is [value_heads]; only additive nets have it.
};

// Names rows [begin, end) of the sequence in slot `slot`, which start at its position `position`.
// Output rows before `first_written` are not written. The rows are computed in chunks of kDeltaRows
// rows from `begin` on, as matrix products (kernels/ops.h, DeltaState).
struct DeltaRange {
  int64_t begin = 0, end = 0, first_written = 0;
  int64_t slot = 0, position = 0;
};
void delta_rows(const DeltaCall& call, const DeltaRange& range, Stream stream);

}  // namespace walsh::cuda
