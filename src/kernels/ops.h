// Declares the operations of the forward pass on CPUs. Each has one signature. There is one table
// of functions per instruction set, chosen at run time. `ref` is complete, and every other table is
// tested against it.
//
// All pointers are 64-byte aligned unless noted, and all row lengths are in elements. Functions
// work on a range given by the caller, are single-threaded, allocate nothing and throw nothing.
#pragma once

#include <cstdint>

#include "arch/attention_options.h"
#include "base/aligned.h"
#include "base/cpu.h"
#include "base/dtype.h"
#include "codec/panels.h"
#include "rotate/rotation.h"

namespace walsh {

// An int8 scale of a rotated input covers this many activations.
inline constexpr int kActivationGroup = 128;
// An int8 scale of an input without rotation covers this many.
inline constexpr int kPlainGroup = 32;
// The scale of a second plane of activations is this part of the first one's. A product with both
// is therefore one integer, kPlaneRatio * first + second, times the scale of the second.
inline constexpr int kPlaneRatio = 254;

// Holds the quantized inputs of a matmul: m vectors of `cols` values, each `planes` int8 planes.
//   x[t][c] ~ sum over planes p of scale[t*planes+p][c / group] * q[t*planes+p][c]
// Rows of q beyond a vector's own length are zero up to cols. A second plane holds the rounding
// residual of the first (scale / kPlaneRatio), about 15 bits together.
struct ActivationsI8 {
  int64_t cols = 0;
  int64_t stride = 0;  // It is the distance of rows of q.
  int group = kActivationGroup;
  int planes = 1;
  AlignedArray<int8_t> q;      // Its shape is [m * planes][stride], of which `cols` are used.
  AlignedArray<float> scales;  // Its shape is [m * planes][cols / group, rounded up].
  AlignedArray<int32_t> sums;  // They are sums of q over 32 columns, [m * planes][cols / 32].

  ActivationsI8() = default;
  // Rows of q are `stride` bytes apart, or without padding where it is 0.
  ActivationsI8(int64_t max_m, int64_t cols, int group, int planes, int64_t stride = 0);
  const int8_t* row(int64_t vector) const { return q.data() + vector * stride; }
  int8_t* row(int64_t vector) { return q.data() + vector * stride; }
  int64_t groups() const { return (cols + group - 1) / group; }
};

// Says how an input row is converted for a matmul. Each distinct input is converted once.
struct InputTransform {
  const Rotator* rotator = nullptr;  // If it is null, rows are not rotated.
  int64_t width = 0;                 // It is the length of a row, which is zero-padded to `cols`.
  // It is the padded length, a multiple of 32 (or width itself for dense f32 use).
  int64_t cols = 0;
};

// Updates of the delta rule within a chunk of this length are applied to the state together. Chunks
// begin at multiples of it.
inline constexpr int64_t kDeltaChunk = 32;

// Describes one key head of a gated delta net and value heads that read it.
struct DeltaShape {
  int64_t values = 0;                  // It is the number of value heads.
  int64_t key_dim = 0, value_dim = 0;  // They are sizes of heads, multiples of 16.
  bool additive = false;               // If true, updates do not depend on the state.
};

// Holds what a sequence stores for one key head: the states at the start of the current chunk, and
// the updates of the chunk's rows so far. With G_t, the sum of the logarithms of the decays of the
// chunk's rows up to t,
//   u_t = strength_t (v_t - e^G_t S^T k_t - sum over j < t of e^(G_t - G_j) (k_t k_j) u_j),
//   o_t = e^G_t S^T q_t + sum over j <= t of e^(G_t - G_j) (q_t k_j) u_j,
// and after the chunk S <- e^G S + sum over j of e^(G - G_j) k_j u_j^T. If the shape is additive,
// u_t = strength_t v_t.
struct DeltaState {
  float* states;   // It is S, [values][key_dim][value_dim].
  float* keys;     // It has k_j, [key_dim][kDeltaChunk].
  float* updates;  // It has u_j, [values][kDeltaChunk][value_dim].
  float* sums;     // It has G_j, [values][kDeltaChunk].

  static int64_t floats(const DeltaShape& s) {
    return s.key_dim * (s.values * s.value_dim + kDeltaChunk) +
           s.values * kDeltaChunk * (s.value_dim + 1);
  }
  // Places the arrays in `memory`, float[floats(shape)].
  DeltaState(const DeltaShape& s, float* memory)
      : states(memory),
        keys(states + s.values * s.key_dim * s.value_dim),
        updates(keys + s.key_dim * kDeltaChunk),
        sums(updates + s.values * kDeltaChunk * s.value_dim) {}
};

// Points to new rows of a sequence. Row i of an array begins i strides after its pointer; value
// heads are neighbours.
struct DeltaRows {
  const float *q, *k;                 // Their shape is [key_dim]; they are scaled.
  const float* v;                     // Its shape is [values][value_dim].
  int64_t ld;                         // It is the stride of q, k and v.
  const float *log_decay, *strength;  // Their shape is [values].
  // Its shape is [values], for all rows; results get skip * v added. If null, nothing is added.
  const float* skip;
  int64_t ld_decay, ld_strength;
  // Row i, counted from `first`, is written to row i - first.
  float* out;
  int64_t ld_out;
  int64_t first = 0;  // Rows before it are not written.
};

// Says where keys and values of one layer and sequence are, in fp16 pages
// [kv_heads][page_positions][head_dim]. Positions from page_positions * j on are in page pages[j];
// page_positions is a multiple of 64. Where values are the first `value_dim` numbers of longer
// rows, such as those of keys, they lie head_dim apart.
struct KvView {
  const uint16_t* keys = nullptr;
  const uint16_t* values = nullptr;
  int64_t page_positions = 0;
  int kv_heads = 0;
  int head_dim = 0;
  const int32_t* pages = nullptr;  // If it is null, everything is one page, number 0.
  int value_dim = 0;               // Results have this size, too; 0: it is head_dim.

  int value_width() const { return value_dim == 0 ? head_dim : value_dim; }
  // Returns where a position of a head is in the arrays, in values.
  int64_t offset(int64_t kv_head, int64_t position) const {
    if (pages == nullptr) return (kv_head * page_positions + position) * head_dim;
    const int64_t page = pages[position / page_positions];
    return ((page * kv_heads + kv_head) * page_positions + position % page_positions) * head_dim;
  }
};

// Holds the arguments of Ops::attention, which takes `m` consecutive queries of the `heads` query
// heads that share one kv head, so that the cache is read once for all of them. Query i is at
// position `position + i` and sees what the options say; positions from position + m on are not
// read. Head h reads q[i * ldq + h * head_dim + d] and writes out[i * ldo + h * value_width() + d];
// out may not overlap q. head_dim and value_dim are multiples of 8; q and out need no alignment.
struct GroupAttention {
  KvView kv;
  int kv_head = 0, heads = 0;
  int64_t m = 0, position = 0;
  AttentionOptions options;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  // If it is not null, it receives the logarithm of the sum of e^logit of each row, [m][heads].
  // Callers merge results over parts of the positions with it.
  float* log_sums = nullptr;
  // It is float[attention_scratch(m, position + m, head_dim)] with any content.
  float* scratch = nullptr;

  const float* query(int64_t i, int64_t head) const { return q + i * ldq + head * kv.head_dim; }
  float* result(int64_t i, int64_t head) const { return out + i * ldo + head * kv.value_width(); }
  // These return the positions [first(i), end(i)) that query i sees.
  int64_t end(int64_t i) const { return position + i + 1; }
  int64_t first(int64_t i) const { return options.first_seen(position + i); }
};

// Holds the arguments of Ops::matmul_i8 and Ops::matmul_lookup. For t < m and the rows of panels
// [panel_begin, panel_end), these set y[t * ldy + row] to the sum of W[row][c] x[t][c] over c, or
// add it to y if `accumulate` is true.
struct PanelMatmul {
  const PanelMatrix& w;
  const ActivationsI8& x;
  int64_t m;
  float* y;
  int64_t ldy, panel_begin, panel_end;
  bool accumulate;
};

// Holds the arguments of Ops::matmul_f32, whose inputs are x[t * ldx + c].
struct PanelMatmulF32 {
  const PanelMatrix& w;
  const float* x;
  int64_t ldx, m;
  float* y;
  int64_t ldy, panel_begin, panel_end;
  bool accumulate;
};

struct Ops {
  // Multiplies with int8 inputs. The smaller of w.group and x.group must divide the larger (or the
  // larger cover the row). Every instruction set gives the same bits, and those of a token do not
  // depend on m: with i = the integer sum over the columns of one scale group of both, in column
  // order,
  //   y = fma(i, (scale * unit) * x_scale, y), then y = fma(offset, sum(q) * x_scale, y).
  // For a trellis y = fma(i, factor * x_scale, y) with the factor of the column block (or the scale
  // of row and block), where i is over at most 128 columns of one block. In the end
  // y = y * (scale of the row * unit) (or y * unit). Where a token has two planes, i and sum(q) are
  // kPlaneRatio times those of the first plus those of the second, whose x_scale is taken.
  void (*matmul_i8)(const PanelMatmul& call);
  // Computes what matmul_i8 computes, from float32 inputs in the rotated basis, without rounding.
  // The decoded weights (scale * level + offset) are multiplied in column order by fma and summed
  // over blocks of 128 columns, then over blocks.
  void (*matmul_f32)(const PanelMatmulF32& call);
  // Multiplies product codes like matmul_i8, but looks products up instead of decoding weights. The
  // tables of products are rounded to int8 (codec/product/product_tables.h). With V vectors of four
  // columns in a group, y differs by at most V * step * |scale * unit * x_scale| per group; y =
  // fma(sum, (scale * unit) * (x_scale * step), y) in column order, from 0 or from y when
  // `accumulate`. Every instruction set gives the same bits.
  void (*matmul_lookup)(const PanelMatmul& call);
  // Multiplies with plain weights, row-major [rows][cols] as in the file (they need no alignment),
  // for rows [row_begin, row_end).
  void (*matmul_dense)(DType type, const void* w, int64_t cols, const float* x, int64_t ldx,
                       int64_t m, float* y, int64_t ldy, int64_t row_begin, int64_t row_end);

  // Computes out[n] = x[n] * gain[n] / sqrt(mean(x^2) + eps), eps > 0; out may be x.
  void (*rms_norm)(const float* x, const float* gain, int64_t n, float eps, float* out);
  // Computes out[n] = silu(gate[n]) * up[n]; out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // Computes out[n] = gelu(gate[n]) * up[n] with GateFunction::gelu_tanh; out may be gate or up.
  void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // Computes out[n] = x[n] / (1 + e^-gate[n]); out may be gate or x.
  void (*sigmoid_mul)(const float* gate, const float* x, int64_t n, float* out);
  // Computes x[n] = cap * tanh(x[n] / cap), cap > 0.
  void (*soft_cap)(float* x, int64_t n, float cap);
  // Quantizes one row x[cols] (rotated or not, zero-padded) to int8 planes: rows t*planes.. of
  // `out`. Every instruction set gives the same bits. A group below 2^-100 has scale 0, a group
  // that is not finite has scale NaN, both with q = 0.
  void (*quantize_i8)(const float* x, ActivationsI8& out, int64_t t);
  // Turns pairs (i, i + rotated/2) of `heads` heads in place by cos/sin[rotated/2]. Values from
  // `rotated` on (even, at most head_dim) stay as they are.
  void (*rope)(float* x, int heads, int head_dim, int rotated, const float* cos, const float* sin);
  // Converts float32 to fp16, rounding to nearest even.
  void (*to_f16)(const float* x, int64_t n, uint16_t* out);
  void (*from_f16)(const uint16_t* x, int64_t n, float* out);
  // Computes attention to fp16 keys and values. A row's result does not depend on m or heads.
  void (*attention)(const GroupAttention& call);
  // Computes one block of a softmax that is computed block by block. For i in [begin, end) the
  // logits cap(scale * row[i] + shift), with scale and cap of the options, become weights e^(logit
  // - largest). All other entries of row[n] become 0 (possibly NaN, if a logit is). `largest`
  // (initially -infinity) and `total`, the sum of the weights, are carried from block to block.
  // Returns the factor by which sums weighted with earlier blocks must be multiplied. n is a
  // multiple of 16, begin < end.
  float (*weigh)(float* row, int64_t n, int64_t begin, int64_t end, const AttentionOptions& options,
                 float shift, float* largest, float* total);
  // Computes out[i] = weights[i] * the fp16 scales[i]. It is 0 if the weight is 0 and the scale is
  // NaN. Weights are not negative, and n is a multiple of 16.
  void (*scale_weights)(const float* weights, const uint16_t* scales, int64_t n, float* out);
  // Applies the gated delta rule (arch/layer.h) of one key head to `m` consecutive rows with the
  // numbers [used, used + m) in a chunk of kDeltaChunk, used + m <= kDeltaChunk. Results and state
  // do not depend on how the rows of a chunk are divided into calls. `scratch` is
  // float[delta_rule_scratch(shape)] with any content.
  void (*delta_rule)(const DeltaShape& shape, const DeltaState& state, const DeltaRows& rows,
                     int64_t used, int64_t m, float* scratch);
};

// Returns how many floats of scratch attention needs for up to m queries that end before
// `end_position`.
int64_t attention_scratch(int64_t m, int64_t end_position, int head_dim);

// Returns how many floats of scratch delta_rule needs.
int64_t delta_rule_scratch(const DeltaShape& shape);

// Returns the table of an instruction set. Throws usage if the machine lacks it.
const Ops& ops(Isa isa);
inline const Ops& ops() {
  return ops(current_isa());
}

// Converts one input row while it is in the first-level cache. It is normalized (if gain is not
// null), padded, rotated and quantized. Writes the float row to `row`[cols] and, if `quantized` is
// not null, its int8 planes.
void prepare_input(const Ops& ops, const InputTransform& transform, const float* x,
                   const float* gain, float eps, float* row, ActivationsI8* quantized, int64_t t);

}  // namespace walsh
