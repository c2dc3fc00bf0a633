// Computes attention of one row as a phase of a step. The phase applies norm and rope to queries
// and keys, appends to the cache, and computes the softmax over all positions.
//
// The positions of every cache head are divided among blocks, and those of a block among its warps,
// 16 at a time. Keys and values go from memory straight to registers. The first keys are loaded
// before the phase waits for the new queries. The order of the columns does not matter for a
// product of queries and keys, so a lane takes 16 contiguous bytes of a row. Where the tensor cores
// need columns of values, byte permutes interleave rows. The newest position is not read from
// memory.
#pragma once

#include "kernels/cuda/attention/decode_softmax.cuh"
#include "kernels/cuda/gemv/k_tile_dot.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/rows/rope.cuh"

namespace walsh::cuda {

// Holds the tags of queries, keys and values, and of the output.
struct PhaseBits {
  struct In {
    bool here;
    uint32_t bit;
  };
  In q, k, v;
  uint32_t out;
};

__device__ __forceinline__ PhaseBits bits_of(const ProgramPhase& phase, uint32_t epoch) {
  const auto in = [&](const ValueTag& tag) {
    return PhaseBits::In{tag.here != 0, tag_bit(tag, epoch)};
  };
  return {in(phase.in[0]), in(phase.in[1]), in(phase.in[2]), tag_bit(phase.out[0], epoch)};
}

// Computes the phase. With `Mixers`, heads may have gates, and rope may turn only a part of each
// head. Of several rows each has parts of its own, which follow those of the row before; all their
// values are exchanged.
template <int Dim, bool Mixers, int Rows = 1>
class AttendPhase {
 protected:
  static constexpr int kChunks = Dim / 32;   // They have 32 columns of a key.
  static constexpr int kWords = Dim / 16;    // They hold a lane's columns of a value.
  static constexpr int kVectors = Dim / 64;  // They have 16 bytes each.
  // Rows of queries have this length. The padding puts every head into other banks.
  static constexpr int kRowBytes = Dim * 2 + 16;
  // The sums of this many heads are combined in one pass.
  static constexpr int kPassHeads = kHeadPass / Dim;
  // The keys of a tile, and the values, are loaded in this many steps. Beside the sums of 256
  // values of a head, registers have room for 128 columns.
  static constexpr int kSteps = Dim <= 128 ? 1 : Dim / 128;
  static constexpr int kStepChunks = kChunks / kSteps, kStepVectors = kVectors / kSteps;

  // Holds 16 positions. Lane 4 g + t has keys g and g + 8 in columns 32 c + 8 t .., and values 2 t,
  // 2 t + 1, 2 t + 8, 2 t + 9 in columns Dim / 8 * g ..
  struct Keys {
    uint4 row[2][kStepChunks];
  };
  struct Values {
    uint4 row[4][kStepVectors];
  };

 public:
  __device__ AttendPhase(const AttentionPhase& args, std::byte* memory, const PhaseBits& bits,
                         int warp, int lane)
      : a_(args), bits_(bits), warp_(warp), lane_(lane), memory_(memory) {
    if constexpr (Rows == 1) take_row(0);
  }

  // Computes all parts that belong to this block.
  __device__ __forceinline__ void run() {
    int part = last_first();
#pragma unroll 1
    for (int row = 0; row < Rows; ++row) {
      if constexpr (Rows > 1) take_row(row);
      const int parts = a_.kv_heads * head_tiles_ * splits_;
#pragma unroll 1
      for (; part < parts; part += static_cast<int>(gridDim.x))
        run_part(part);
      part -= parts;
    }
  }

 protected:
  __device__ __forceinline__ const ProgramRow& at_row() const {
    return Rows == 1 ? program_row : program_rows[row_];
  }

  __device__ __forceinline__ void take_row(int row) {
    row_ = row;
    position_ = at_row().position;
    first_ = first_seen(a_.rule, position_);
    first_tile_ = first_ / kWarpTokens;
    tiles_ = position_ / kWarpTokens + 1 - first_tile_;
    const bool whole = tiles_ <= a_.whole_tiles * kProgramWarps;
    splits_ = whole ? 1 : min(a_.most_splits, (tiles_ + kProgramWarps - 1) / kProgramWarps);
    head_step_ = whole ? a_.whole_heads : kTileHeads;
    head_tiles_ = whole ? a_.whole_blocks : a_.tiles;
  }

  __device__ __forceinline__ void run_part(int part) {
    place(part);
    if (at_ < end_) {
      place_ = row_of(at_ * kWarpTokens);
      expect();
    }
    prepare_heads();
    __syncthreads();
    Running<Dim> run;
#pragma unroll 1
    while (at_ < end_) {
      attend(run);
      at_ += kProgramWarps;
      if (at_ < end_) place_ = row_of(at_ * kWarpTokens);
    }
    __syncthreads();
    join(run);
  }

  // Sets what this block and this warp compute in a part.
  __device__ __forceinline__ void place(int part) {
    const auto divide = [](int a, int b) { return b == 1 ? a : cuda::divide(a, b); };
    const int head_tile = divide(part, splits_);
    split_ = part - head_tile * splits_;
    kv_head_ = divide(head_tile, head_tiles_);
    const int in_group = head_tile - kv_head_ * head_tiles_;
    head_tile_ = head_tile;
    first_head_ = kv_head_ * a_.group + in_group * head_step_;
    heads_ = min(head_step_, a_.group - in_group * head_step_);
    stores_ = in_group == 0 && (Rows == 1 || row_ < program_row_count);
    at_ = first_tile_ + divide(tiles_ * split_, splits_) + warp_;
    end_ = first_tile_ + divide(tiles_ * (split_ + 1), splits_);
    active_ = min(kProgramWarps, end_ - at_ + warp_);
  }

  __device__ __forceinline__ int64_t row_of(int position) const {
    const int i = position / kPageTokens;
    const int64_t page = i < kProgramPages ? at_row().first_pages[i] : at_row().pages[i];
    return ((page * a_.kv_heads + kv_head_) * kPageTokens + position % kPageTokens) * Dim;
  }

  __device__ __forceinline__ bool in_memory(int position) const {
    return position >= first_ && position < position_;
  }

  // Loads one step of tile at_: the visible positions except the newest one, with zeros for the
  // others.
  __device__ __forceinline__ void load(Keys& to, int step) const {
    const int token = at_ * kWarpTokens;
    const auto* rows = reinterpret_cast<const uint4*>(a_.keys + place_) + lane_ % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int offset = lane_ / 4 + 8 * r;
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c)
        to.row[r][c] = in_memory(token + offset)
                           ? rows[offset * (Dim / 8) + 4 * (step * kStepChunks + c)]
                           : uint4{};
    }
  }

  __device__ __forceinline__ void load(Values& to, int step) const {
    const int token = at_ * kWarpTokens;
    const auto* rows = reinterpret_cast<const uint4*>(a_.values + place_) + lane_ / 4 * kVectors +
                       step * kStepVectors;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int offset = value_row(r);
#pragma unroll
      for (int v = 0; v < kStepVectors; ++v)
        to.row[r][v] = in_memory(token + offset) ? rows[offset * (Dim / 8) + v] : uint4{};
    }
  }

  // Prefetches tile at_ into the L2 cache, because there are no registers for it until the queries
  // are ready.
  __device__ __forceinline__ void expect() const {
    constexpr int kEach = kWarpTokens * Dim / 32, kLine = Dim == 256 ? 64 : kEach;
#pragma unroll
    for (int i = 0; i < kEach; i += kLine) {
      const int64_t line = place_ + lane_ * kEach + i;
      prefetch(a_.keys + line);
      expect_line(a_.values + line);
    }
  }

  // Returns the row of the tile that value `r` of this lane belongs to.
  __device__ __forceinline__ int value_row(int r) const {
    return 2 * (lane_ % 4) + r % 2 + r / 2 * 8;
  }

  __device__ __forceinline__ std::byte* query(int head) const {
    return memory_ + head * kRowBytes;
  }
  __device__ __forceinline__ std::byte* newest(int value) const {
    return memory_ + (kTileHeads + value) * kRowBytes;
  }

  // Returns which pairs of a head rope turns. Without other mixers these are all or none.
  __device__ __forceinline__ HeadPairs head_pairs() const {
    return {Dim / 2, Mixers ? a_.turned : Dim / 2};
  }
  // Returns the distance between two query heads, between which gates may lie.
  __device__ __forceinline__ int query_step() const {
    return Mixers && a_.gated ? 2 * Dim : Dim;
  }

  // Returns where the exchanged values of this row begin, if a row has `values` of them.
  template <typename T>
  __device__ __forceinline__ T* of_row(T* all, int values) const {
    return Rows == 1 ? all : all + row_ * exchange_stride(values);
  }

  // Reads a head of queries, keys or values. Heads are `step` values apart.
  __device__ __forceinline__ Pairs read_pairs(const float* all, int head, int step,
                                              PhaseBits::In in) const {
    const float* from = all + head * step;
    if (Rows == 1 && !in.here) return load_pairs(from, head_pairs(), lane_);
    Pairs v;
    uint32_t wrong;
    do {
      wrong = 0;
      v = load_pairs(from, head_pairs(), lane_, [&](const float* p) {
        const uint32_t word = exchanged_word(all + exchange_place(static_cast<int>(p - all)));
        wrong |= word ^ in.bit;
        return __uint_as_float(word & ~1u);
      });
    } while (__any_sync(~0u, (wrong & 1) != 0));
    return v;
  }

  // Reads the gate of an output value, as it is now, without waiting for it.
  __device__ __forceinline__ uint32_t ask_gate(int head, int column) const {
    if constexpr (!Mixers) return 0;
    if (!a_.gated) return 0;
    const int i = (2 * head + 1) * Dim + column;
    return bits_.q.here ? exchanged_word(a_.q + exchange_place(i)) : __float_as_uint(a_.q[i]);
  }

  __device__ __forceinline__ float gated(float value, int head, int column, uint32_t gate) const {
    if (!a_.gated) return value;
    while (bits_.q.here && (gate & 1) != bits_.q.bit)
      gate = ask_gate(head, column);
    return value / (1.0f + expf(-__uint_as_float(bits_.q.here ? gate & ~1u : gate)));
  }

  __device__ __forceinline__ void write(int head, int column, float value, uint32_t gate) const {
    const int place = head * Dim + column;
    if constexpr (Mixers) value = gated(value, head, column, gate);
    exchange(of_row(a_.exchange, a_.heads * Dim) + exchange_place(place), value, bits_.out);
    if (Rows == 1) {
      a_.out[place] = value;
    } else if (row_ < program_row_count) {
      a_.out[row_ * a_.ldo + place] = value;
    }
  }

  // Prepares the query heads of this part and the newest key and value, one warp per head, and
  // writes them as halves to shared memory. Key and value also go to the cache.
  __device__ __forceinline__ void prepare_heads() const {
    const int turned = Mixers ? a_.turned : Dim / 2;
    const HeadPairs pairs = head_pairs();
    const bool rotates = a_.cos != nullptr;
    const auto load_turn = [&] {
      const int64_t row = int64_t{position_} * turned;
      return rotates ? load_angles(a_.cos + row, a_.sin + row, turned, lane_) : Pairs{};
    };
    if (warp_ < kTileHeads) {
      auto* to = reinterpret_cast<__half*>(query(warp_));
      Pairs v[1] = {};
      if (warp_ < heads_) {
        const Pairs turn = load_turn();
        const float* all = of_row(a_.q, a_.heads * query_step());
        v[0] = read_pairs(all, first_head_ + warp_, query_step(), bits_.q);
        cuda::prepare_heads(v, query_rule(a_), turn, position_, pairs, lane_, rotates);
      }
      store_pairs(v[0], to, pairs, lane_, [](float x) { return __float2half_rn(x); });
    } else if (warp_ < kTileHeads + 2 && end_ == first_tile_ + tiles_) {
      const bool key = warp_ == kTileHeads;
      const Pairs turn = load_turn();
      const PhaseBits::In in{key ? bits_.k.here : bits_.v.here, key ? bits_.k.bit : bits_.v.bit};
      const float* all = of_row(key ? a_.k : a_.v, a_.kv_heads * Dim);
      Pairs v[1] = {read_pairs(all, kv_head_, Dim, in)};
      if (key) cuda::prepare_heads(v, key_rule(a_), turn, position_, pairs, lane_, rotates);
      const auto kept = [&](float x) { return kept_half(x, key); };
      store_pairs(v[0], reinterpret_cast<__half*>(newest(key ? 0 : 1)), pairs, lane_, kept);
      if (!stores_) return;
      auto* pool = reinterpret_cast<__half*>(const_cast<uint16_t*>(key ? a_.keys : a_.values));
      store_pairs(v[0], pool + row_of(position_), pairs, lane_, kept);
    }
  }

  // Adds the newest position to the last tile.
  __device__ __forceinline__ void add_newest(Keys& to, int step) const {
    const auto* key =
        reinterpret_cast<const uint4*>(newest(0)) + lane_ % 4 + 4 * step * kStepChunks;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (lane_ / 4 + 8 * r != position_ % kWarpTokens) continue;
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c)
        to.row[r][c] = key[4 * c];
    }
  }

  __device__ __forceinline__ void add_newest(Values& to, int step) const {
    const auto* value =
        reinterpret_cast<const uint4*>(newest(1)) + lane_ / 4 * kVectors + step * kStepVectors;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (value_row(r) != position_ % kWarpTokens) continue;
#pragma unroll
      for (int v = 0; v < kStepVectors; ++v)
        to.row[r][v] = value[v];
    }
  }

  static __device__ __forceinline__ uint32_t word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
  }

  // Computes scores and softmax of tile at_ and adds its values.
  __device__ __forceinline__ void attend(Running<Dim>& run) const {
    const bool last = at_ == position_ / kWarpTokens;
    Keys keys;
    Values values;
    load(keys, 0);
    if constexpr (kSteps == 1) load(values, 0);
    const auto* q = reinterpret_cast<const uint4*>(query(lane_ / 4)) + lane_ % 4;
    float s[2][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step > 0) load(keys, step);
      if (last) add_newest(keys, step);
#pragma unroll
      for (int c = 0; c < kStepChunks; ++c) {
        const uint4 b = q[4 * (step * kStepChunks + c)];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const uint4 &low = keys.row[0][c], &high = keys.row[1][c];
          const uint32_t a[4] = {word(low, 2 * j), word(high, 2 * j), word(low, 2 * j + 1),
                                 word(high, 2 * j + 1)};
          mma_f16(s[j], a, word(b, 2 * j), word(b, 2 * j + 1));
        }
      }
    }
    if constexpr (kSteps > 1) load(values, 0);
    const float logits[4] = {s[0][0] + s[1][0], s[0][1] + s[1][1], s[0][2] + s[1][2],
                             s[0][3] + s[1][3]};
    uint32_t b0, b1;
    const int token = at_ * kWarpTokens;
    weigh_tile<Dim>(logits, first_ - token, position_ + 1 - token, a_.rule.scale, lane_, run, b0,
                    b1);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step > 0) load(values, step);
      if (last) add_newest(values, step);
#pragma unroll
      for (int d = 0; d < kWords / kSteps; ++d) {
        uint32_t w[4];
#pragma unroll
        for (int r = 0; r < 4; ++r)
          w[r] = word(values.row[r][d / 4], d % 4);
        const uint32_t a[4] = {__byte_perm(w[0], w[1], 0x5410), __byte_perm(w[0], w[1], 0x7632),
                               __byte_perm(w[2], w[3], 0x5410), __byte_perm(w[2], w[3], 0x7632)};
        mma_f16(run.sum[step * (kWords / kSteps) + d], a, b0, b1);
      }
    }
  }

  // Adds up the sums of the warps to one part, a few heads at a time. The block that finishes last
  // combines the parts.
  __device__ __forceinline__ void join(const Running<Dim>& run) const {
    auto* sums = reinterpret_cast<float*>(memory_);
    auto* state = reinterpret_cast<float2*>(sums + kProgramWarps * kHeadPass);
    const int g = lane_ / 4, t = lane_ % 4;
    const bool active = warp_ < active_;
    // The sums of a head are pairs of columns [kWords][g], so that lanes write to different banks.
    const int in_pass = static_cast<int>(threadIdx.x) / Dim;
    const int place = static_cast<int>(threadIdx.x) % Dim;
    const int column = 2 * kWords * (place / 2 % 8) + place / 16 * 2 + place % 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = sum_totals(run.total[h]);
      if (g == 0 && active)
        state[warp_ * kTileHeads + 2 * t + h] = make_float2(run.largest[h], total);
    }
#pragma unroll 1
    for (int pass = 0; pass < heads_; pass += kPassHeads) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int head = 2 * t + h - pass;
        if (!active || head < 0 || head >= kPassHeads) continue;
        auto* to = reinterpret_cast<float2*>(sums + (warp_ * kPassHeads + head) * Dim) + g;
#pragma unroll
        for (int d = 0; d < kWords; ++d)
          to[8 * d] = make_float2(run.sum[d][h], run.sum[d][h + 2]);
      }
      uint32_t gate = 0;
      if constexpr (Mixers)
        if (splits_ == 1 && pass + in_pass < heads_)
          gate = ask_gate(first_head_ + pass + in_pass, column);
      __syncthreads();
      const int head = pass + in_pass;
      if (head < heads_) join_warps(sums + in_pass * Dim + place, state + head, head, column, gate);
      __syncthreads();
    }
    if (splits_ > 1 && comes_last()) join_parts();
  }

  __device__ __forceinline__ void join_warps(const float* sums, const float2* state, int head,
                                             int column, uint32_t gate) const {
    float largest = kNothing, total = 0, sum = 0;
#pragma unroll 4
    for (int w = 0; w < active_; ++w)
      largest = fmaxf(largest, state[w * kTileHeads].x);
    const float base = exponent_base(largest, a_.rule.scale);
#pragma unroll 4
    for (int w = 0; w < active_; ++w) {
      const float2 of = state[w * kTileHeads];
      const float factor = power_of_two(__fmaf_rn(of.x, a_.rule.scale, -base));
      total = __fmaf_rn(of.y, factor, total);
      sum = __fmaf_rn(sums[w * kHeadPass], factor, sum);
    }
    if (splits_ == 1) {
      total += sink_weight(a_.rule, first_head_ + head, largest);
      write(first_head_ + head, column, __fdividef(sum, total), gate);
    } else {
      const int64_t slot =
          int64_t{of_rows(a_.heads) + first_head_ + head} * a_.most_splits + split_;
      a_.partials[slot * Dim + column] = sum;
      if (column == 0) states()[slot] = make_float2(largest, total);
    }
  }

  __device__ __forceinline__ float2* states() const {
    return reinterpret_cast<float2*>(a_.partials + int64_t{Rows * a_.heads} * a_.most_splits * Dim);
  }
  // Returns how many entries the rows before this one have, if a row has `each` of them.
  __device__ __forceinline__ int of_rows(int each) const {
    return Rows == 1 ? 0 : row_ * each;
  }
  __device__ __forceinline__ int32_t* arrived() const {
    return a_.arrived + of_rows(a_.kv_heads * a_.tiles) + head_tile_;
  }

  __device__ __forceinline__ bool comes_last() const {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(arrived(), 1) == splits_ - 1;
    __syncthreads();
    if (!last) return false;
    __threadfence();
    if (threadIdx.x == 0) *arrived() = 0;
    return true;
  }

  // Combines all parts of the heads, in order.
  __device__ __forceinline__ void join_parts() const {
    auto* factors = reinterpret_cast<float*>(memory_);  // Its shape is [head][split].
    float* inverse = factors + kTileHeads * kPhaseMaxSplits;
    if (warp_ < heads_) {
      const int head = of_rows(a_.heads) + first_head_ + warp_;
      const float2* state = states() + int64_t{head} * a_.most_splits;
      const float of_head = weigh_parts(a_.rule, first_head_ + warp_, state, splits_,
                                        factors + warp_ * kPhaseMaxSplits, lane_);
      if (lane_ == 0) inverse[warp_] = of_head;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < heads_ * Dim; i += kProgramWarps * 32) {
      const int head = i / Dim, column = i % Dim;
      const int of = of_rows(a_.heads) + first_head_ + head;
      const float* values = a_.partials + int64_t{of} * a_.most_splits * Dim + column;
      float sum = 0;
      const uint32_t gate = ask_gate(first_head_ + head, column);
#pragma unroll 8
      for (int s = 0; s < splits_; ++s)
        sum = __fmaf_rn(__ldcg(values + s * Dim), factors[head * kPhaseMaxSplits + s], sum);
      write(first_head_ + head, column, sum * inverse[head], gate);
    }
    __syncthreads();
  }

  const AttentionPhase& a_;
  const PhaseBits bits_;
  const int warp_, lane_;
  std::byte* const memory_;
  int row_ = 0, position_;
  int first_, first_tile_, tiles_, splits_;  // They are visible positions, tiles, and parts.
  int head_step_, head_tiles_;  // They are a block's query heads, and blocks of a group.
  int split_ = 0, head_tile_ = 0, kv_head_ = 0, first_head_ = 0, heads_ = 0;
  int active_ = 0;        // This many warps have tiles.
  int64_t place_ = 0;     // It is the place of tile at_ in the cache.
  int at_ = 0, end_ = 0;  // This warp takes every sixteenth tile from at_ on.
  bool stores_ = false;
};

}  // namespace walsh::cuda
