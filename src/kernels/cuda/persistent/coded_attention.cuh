// Computes attention of one row to a coded cache as a phase of a step. The phase applies norm, rope
// and rotation to queries, keys and values, appends to the ring, computes the softmax over all
// positions, and rotates back. Bundles that leave the window are encoded before the step.
//
// A head's tiles are the stored ones, then fp16 rows: the first positions and those of the ring.
// They are divided among blocks. In a block the first warps have its tiles of rows, and the others
// have stored ones. So a warp has sums of one kind only, in the order of its columns.
#pragma once

#include "kernels/cuda/persistent/coded_rows.cuh"
#include "kernels/cuda/persistent/stored_tile.cuh"
#include "kernels/cuda/rows/head_columns.cuh"

namespace walsh::cuda {

template <int Dim>
class AttendCodedPhase : CodedRows<Dim> {
  using Pages = CodedRows<Dim>;
  using Pages::a_;
  using Pages::active_;
  using Pages::at_;
  using Pages::bits_;
  using Pages::end_;
  using Pages::first_;
  using Pages::first_head_;
  using Pages::head_step_;
  using Pages::head_tile_;
  using Pages::head_tiles_;
  using Pages::heads_;
  using Pages::kPassHeads;
  using Pages::kv_head_;
  using Pages::kWords;
  using Pages::lane_;
  using Pages::memory_;
  using Pages::position_;
  using Pages::split_;
  using Pages::splits_;
  using Pages::stores_;
  using Pages::tiles_;
  using Pages::warp_;
  static_assert(Dim <= 128);
  // A warp has this many floats of a head's sums. They are in the order of the columns, with two
  // more after each 16, so that lanes write to different banks.
  static constexpr int kSumStride = Dim + Dim / 8;
  static constexpr int kSums = kProgramWarps * kPassHeads * kSumStride;
  static_assert((kSums + 2 * kProgramWarps * kTileHeads + kHeadPass) * 4 == kCodedPhaseBytes);

 public:
  __device__ AttendCodedPhase(const AttentionPhase& args, std::byte* memory, const PhaseBits& bits,
                              int warp, int lane)
      : Pages(args, memory, bits, warp, lane) {
    const int border = stored_positions(program_row.kept, position_, a_.coded.window);
    first_stored_ = first_ / kCacheTile;
    stored_ = max(0, border / kCacheTile - first_stored_);
    leading_ = border > 0 && sees_all(a_.rule) ? 1 : 0;
    first_recent_ = max(border, first_) / kCacheTile;
    tiles_ = stored_ + leading_ + position_ / kCacheTile + 1 - first_recent_;
    const bool whole = tiles_ <= a_.whole_tiles * kProgramWarps;
    splits_ = whole ? 1 : min(a_.most_splits, (tiles_ + kProgramWarps - 1) / kProgramWarps);
    head_step_ = whole ? a_.whole_heads : kTileHeads;
    head_tiles_ = whole ? a_.whole_blocks : a_.tiles;
  }

  // Computes all parts that belong to this block.
  __device__ __forceinline__ void run() {
    const int parts = a_.kv_heads * head_tiles_ * splits_;
#pragma unroll 1
    for (int part = last_first(); part < parts; part += static_cast<int>(gridDim.x)) {
      place(part);
      if (at_ < end_) expect_first();
      prepare_heads();
      __syncthreads();
      Running<Dim> run;
#pragma unroll 1
      for (float shift = kWeightShift;; shift = 0) {
        run = {};
        if (has_rows()) {
          attend_all_rows(run, shift);
        } else {
          attend_codes(run, shift);
        }
        if (shift == 0 || unshift(run)) break;
      }
      __syncthreads();
      join(run);
    }
  }

 private:
  __device__ __forceinline__ bool has_rows() const {
    return warp_ < row_warps_;
  }

  // Sets what this block and this warp compute in a part. A tile of rows takes as long as two
  // others.
  __device__ __forceinline__ void place(int part) {
    const auto divide = [](int a, int b) { return b == 1 ? a : cuda::divide(a, b); };
    head_tile_ = divide(part, splits_);
    split_ = part - head_tile_ * splits_;
    kv_head_ = divide(head_tile_, head_tiles_);
    const int in_group = head_tile_ - kv_head_ * head_tiles_;
    first_head_ = kv_head_ * a_.group + in_group * head_step_;
    heads_ = min(head_step_, a_.group - in_group * head_step_);
    stores_ = in_group == 0;
    const int begin = divide(tiles_ * split_, splits_);
    const int end = divide(tiles_ * (split_ + 1), splits_);
    const int stored = max(min(end, stored_) - begin, 0), rows = end - begin - stored;
    const int share = (2 * kProgramWarps * rows + end - begin + rows - 1) / (end - begin + rows);
    row_warps_ = stored == 0 ? kProgramWarps : min(min(share, rows), kProgramWarps - 1);
    active_ = min(row_warps_, rows) + min(kProgramWarps - row_warps_, stored);
    at_ = has_rows() ? begin + stored + warp_ : begin + warp_ - row_warps_;
    end_ = has_rows() ? end : begin + stored;
    step_ = has_rows() ? row_warps_ : kProgramWarps - row_warps_;
    newest_ = end == tiles_;
  }

  // Returns the number of a stored tile in the cache.
  __device__ __forceinline__ int tile_of(int tile) const {
    const int at = first_stored_ + tile;
    const int i = at / kPageTiles;
    const int page = i < kProgramPages ? program_row.first_pages[i] : program_row.pages[i];
    return (page * a_.kv_heads + kv_head_) * kPageTiles + at % kPageTiles;
  }
  __device__ __forceinline__ const unsigned char* keys_of(int tile) const {
    return a_.coded.keys.tiles + int64_t{tile} * a_.coded.keys.tile_bytes;
  }
  __device__ __forceinline__ const unsigned char* values_of(int tile) const {
    return a_.coded.values.tiles + int64_t{tile} * a_.coded.values.tile_bytes;
  }

  // Returns how many rows of an array lie in front of this head's, if each head of a sequence has
  // `each` rows there.
  __device__ __forceinline__ int64_t rows_before(int each) const {
    return (int64_t{program_sequence} * a_.kv_heads + kv_head_) * each;
  }

  // Returns a tile of fp16 rows.
  __device__ __forceinline__ RowTile rows_of(int tile) const {
    const int recent = tile - stored_ - leading_;
    if (recent < 0) {
      const int64_t place = rows_before(kFirstPositions) * Dim;
      return {a_.coded.keys.leading + place, a_.coded.values.leading + place, 0, kFirstPositions,
              false};
    }
    const int at = first_recent_ + recent, token = at * kCacheTile, ring = a_.coded.ring;
    const int64_t place = (rows_before(ring) + token % ring) * Dim;
    return {a_.keys + place, a_.values + place, first_ - token, position_ - token,
            at == position_ / kCacheTile};
  }

  // Prefetches a stored tile into the L2 cache.
  __device__ __forceinline__ void expect_tile(int tile) const {
    const unsigned char *keys = keys_of(tile), *values = values_of(tile);
#pragma unroll 1
    for (int i = 128 * lane_; i < a_.coded.keys.tile_bytes; i += 4096) {
      expect_line(keys + i);
      expect_line(values + i);
    }
  }

  // Prefetches this warp's first tiles. The tile of the first positions is not prefetched, because
  // the rows behind them belong to others.
  __device__ __forceinline__ void expect_first() const {
    if (has_rows()) {
      if (at_ >= stored_ + leading_) this->expect(rows_of(at_));
      return;
    }
    expect_tile(tile_of(at_));
    if (at_ + step_ < end_) expect_tile(tile_of(at_ + step_));
  }

  // Returns where int8 queries (StoredKeys) are: behind the halves of queries and the newest
  // position.
  __device__ __forceinline__ std::byte* byte_queries() const {
    return this->query(kTileHeads + 2);
  }
  // Returns, as float4 [t], what the integer products of heads 2 t and 2 t + 1 are multiplied by,
  // and what is added to them.
  __device__ __forceinline__ float* logit_factors() const {
    return reinterpret_cast<float*>(byte_queries() + Dim / 32 * 512);
  }

  // Writes a query's two planes, where a value is factor * (256 near + rest).
  __device__ __forceinline__ void store_bytes(const HeadColumns<Dim>& columns, float offset) const {
    float largest = 0;
#pragma unroll
    for (int b = 0; b < Dim / 32; ++b)
      largest = fmaxf(largest, fabsf(columns.v[b]));
    largest = __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(largest)));
    const float inverse = largest > 0 ? 127 / largest : 0.0f;
    // Column 32 b + 8 u + 2 t + p is byte 2 u + p of each plane of lane t.
    const int u = lane_ / 8, t = lane_ % 8 / 2, p = lane_ % 2;
    std::byte* const to = byte_queries() + (4 * warp_ + t) * 16 + 2 * u + p;
#pragma unroll
    for (int b = 0; b < Dim / 32; ++b) {
      const float value = columns.v[b] * inverse;
      const int near = __float2int_rn(value);
      const int rest = min(__float2int_rn((value - static_cast<float>(near)) * 256), 127);
      to[512 * b] = static_cast<std::byte>(near & 255);
      to[512 * b + 8] = static_cast<std::byte>(rest & 255);
    }
    if (lane_ != 0) return;
    float* const factors = logit_factors() + warp_ / 2 * 4 + warp_ % 2;
    factors[0] = largest / (127 * 256) * a_.coded.key_levels.unit;
    factors[2] = offset;
  }

  // Returns what the rotation multiplies column 32 b + lane by.
  __device__ __forceinline__ float factor_of(const CodedPhase::Side& side, int b) const {
    return (a_.coded.signs[b] >> lane_ & 1) != 0 ? -side.factor : side.factor;
  }

  // Loads the angles of the newest position.
  __device__ __forceinline__ Pairs load_turn() const {
    const int64_t row = int64_t{position_} * (Dim / 2);
    return a_.cos != nullptr ? load_angles(a_.cos + row, a_.sin + row, Dim / 2, lane_) : Pairs{};
  }

  // Prepares the query heads of this part and the newest key and value, one warp per head, and
  // writes them to shared memory. Key and value also go to the ring.
  __device__ __forceinline__ void prepare_heads() const {
    const HeadPairs pairs = this->head_pairs();
    const bool rotates = a_.cos != nullptr;
    const auto& keys = a_.coded.keys;
    if (warp_ < kTileHeads) {
      auto* to = reinterpret_cast<__half*>(this->query(warp_));
      const float* offsets = a_.coded.key_offsets + rows_before(1) * Dim;
      Pairs v[1] = {};
      float taken[Dim / 32] = {};
      if (warp_ < heads_) {
        const Pairs turn = load_turn();
        if (stored_ > 0) {
#pragma unroll
          for (int b = 0; b < Dim / 32; ++b)
            taken[b] = offsets[32 * b + lane_];
        }
        v[0] = this->read_pairs(a_.q, first_head_ + warp_, Dim, bits_.q);
        cuda::prepare_heads(v, query_rule(a_), turn, position_, pairs, lane_, rotates);
      }
      HeadColumns<Dim> columns(v[0], pairs, nullptr, lane_);
      columns.rotate(keys.block, lane_, [&](int b) { return factor_of(keys, b); });
      columns.store(to, lane_, [](float x) { return __float2half_rn(x); });
      if (stored_ == 0) return;
      float offset = 0;
#pragma unroll
      for (int b = 0; b < Dim / 32; ++b)
        offset = __fmaf_rn(columns.v[b], taken[b], offset);
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2)
        offset += __shfl_xor_sync(~0u, offset, distance);
      store_bytes(columns, offset);
    } else if (warp_ < kTileHeads + 2 && newest_) {
      const bool key = warp_ == kTileHeads;
      const Pairs turn = load_turn();
      const PhaseBits::In in{key ? bits_.k.here : bits_.v.here, key ? bits_.k.bit : bits_.v.bit};
      Pairs v[1] = {this->read_pairs(key ? a_.k : a_.v, kv_head_, Dim, in)};
      if (key) cuda::prepare_heads(v, key_rule(a_), turn, position_, pairs, lane_, rotates);
      const auto& side = key ? keys : a_.coded.values;
      HeadColumns<Dim> columns(v[0], pairs, nullptr, lane_);
      columns.rotate(side.block, lane_, [&](int b) { return factor_of(side, b); });
      const auto kept = [&](float x) { return kept_half(x, key); };
      columns.store(reinterpret_cast<__half*>(this->newest(key ? 0 : 1)), lane_, kept);
      if (!stores_) return;
      auto* ring = reinterpret_cast<__half*>(const_cast<uint16_t*>(key ? a_.keys : a_.values));
      columns.store(ring + (rows_before(a_.coded.ring) + position_ % a_.coded.ring) * Dim, lane_,
                    kept);
    }
  }

  __device__ __forceinline__ void attend_all_rows(Running<Dim>& run, float shift) const {
#pragma unroll 1
    for (int at = at_; at < end_; at += step_)
      this->attend_rows(rows_of(at), run, shift);
  }

  __device__ __forceinline__ void attend_codes(Running<Dim>& run, float shift) const {
    switch (a_.coded.bits) {
      case 2:
        return attend_stored<2>(run, shift);
      case 3:
        return attend_stored<3>(run, shift);
      case 4:
        return attend_stored<4>(run, shift);
      default:
        return attend_stored<8>(run, shift);
    }
  }

  // Attends to stored tiles. While a tile's keys are multiplied, its values are on their way, then
  // the keys of the next one; the tile behind that is on its way to the L2 cache.
  template <int Bits>
  __device__ __forceinline__ void attend_stored(Running<Dim>& run, float shift) const {
    if (at_ >= end_) return;
    const CodedPhase::Side &keys = a_.coded.keys, &values = a_.coded.values;
    const auto* q = reinterpret_cast<const uint4*>(byte_queries()) + lane_;
    const int seen = sees_all(a_.rule) ? kFirstPositions : first_;
    StoredKeys<Dim, Bits> key;
    StoredValues<Dim, Bits> value;
    int next = tile_of(at_);
    key.load(keys_of(next), keys.groups, lane_);
    value.load(values_of(next), values.groups, lane_);
    if (at_ + step_ < end_) next = tile_of(at_ + step_);
#pragma unroll 1
    for (int at = at_; at < end_; at += step_) {
      const bool more = at + step_ < end_, behind = at + 2 * step_ < end_;
      int later = next;
      if (behind) {
        later = tile_of(at + 2 * step_);
        expect_tile(later);
      }
      float s[4];
      key.multiply(a_.coded.key_levels, q, s);
      if (more) key.load(keys_of(next), keys.groups, lane_);
      const float4 of = reinterpret_cast<const float4*>(logit_factors())[lane_ % 4];
      const float logits[4] = {__fmaf_rn(s[0], of.x, of.z), __fmaf_rn(s[1], of.y, of.w),
                               __fmaf_rn(s[2], of.x, of.z), __fmaf_rn(s[3], of.y, of.w)};
      const int low = seen - (first_stored_ + at) * kCacheTile;
      uint32_t b0, b1;
      weigh_tile<Dim, true>(logits, low, kCacheTile, a_.rule.scale, lane_, run, b0, b1, shift);
      value.hide(low, lane_);
      value.add(a_.coded.value_levels, b0, b1, run);
      if (more) value.load(values_of(next), values.groups, lane_);
      next = later;
    }
  }

  static __device__ __forceinline__ int padded(int column) {
    return column + column / 16 * 2;
  }

  // Writes this warp's sums of one head.
  template <int H>
  __device__ __forceinline__ void share(const Running<Dim>& run, float* to) const {
    const int g = lane_ / 4;
    if (has_rows()) {
      auto* pairs = reinterpret_cast<float2*>(to + padded(Dim / 8 * g));
#pragma unroll
      for (int d = 0; d < kWords; ++d)
        pairs[d] = make_float2(run.sum[d][H], run.sum[d][H + 2]);
    } else {
#pragma unroll
      for (int d = 0; d < kWords; ++d) {
        to[18 * d + g] = run.sum[d][H];
        to[18 * d + g + 8] = run.sum[d][H + 2];
      }
    }
  }

  // Adds up the sums of the warps to one part, a few heads at a time. The block that finishes last
  // combines the parts.
  __device__ __forceinline__ void join(const Running<Dim>& run) const {
    auto* sums = reinterpret_cast<float*>(memory_);
    auto* state = reinterpret_cast<float2*>(sums + kSums);
    auto* turned = reinterpret_cast<float*>(state + kProgramWarps * kTileHeads);
    const int t = lane_ % 4;
    const bool active = warp_ < active_;
    const int in_pass = static_cast<int>(threadIdx.x) / Dim;
    const int column = static_cast<int>(threadIdx.x) % Dim;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float total = sum_totals(run.total[h]);
      if (lane_ / 4 == 0 && active)
        state[warp_ * kTileHeads + 2 * t + h] = make_float2(run.largest[h], total);
    }
#pragma unroll 1
    for (int pass = 0; pass < heads_; pass += kPassHeads) {
      const int own = 2 * t - pass;
      float* const to = sums + (warp_ * kPassHeads + own) * kSumStride;
      if (active && own >= 0 && own < kPassHeads) {
        share<0>(run, to);
        share<1>(run, to + kSumStride);
      }
      __syncthreads();
      const int head = pass + in_pass;
      float value = 0;
      if (head < heads_) {
        value =
            join_warps(sums + in_pass * kSumStride + padded(column), state + head, head, column);
      }
      if (splits_ == 1) deliver(head, column, value, turned);
      __syncthreads();
    }
    if (splits_ > 1 && this->comes_last()) join_parts(turned);
  }

  // Returns the sum of the warps in a column if there is one part; otherwise writes it as a part.
  __device__ __forceinline__ float join_warps(const float* sums, const float2* state, int head,
                                              int column) const {
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
      sum = __fmaf_rn(sums[w * kPassHeads * kSumStride], factor, sum);
    }
    if (splits_ == 1)
      return __fdividef(sum, total + sink_weight(a_.rule, first_head_ + head, largest));
    const int64_t slot = int64_t{first_head_ + head} * a_.most_splits + split_;
    a_.partials[slot * Dim + column] = sum;
    if (column == 0) this->states()[slot] = make_float2(largest, total);
    return 0;
  }

  // Combines all parts of the heads, in order.
  __device__ __forceinline__ void join_parts(float* turned) const {
    auto* factors = reinterpret_cast<float*>(memory_);  // Its shape is [head][split].
    float* inverse = factors + kTileHeads * kPhaseMaxSplits;
    if (warp_ < heads_) {
      const float2* state = this->states() + int64_t{first_head_ + warp_} * a_.most_splits;
      const float of_head = weigh_parts(a_.rule, first_head_ + warp_, state, splits_,
                                        factors + warp_ * kPhaseMaxSplits, lane_);
      if (lane_ == 0) inverse[warp_] = of_head;
    }
    __syncthreads();
#pragma unroll 1
    for (int first = 0; first < heads_; first += kPassHeads) {
      const int head = first + static_cast<int>(threadIdx.x) / Dim;
      const int column = static_cast<int>(threadIdx.x) % Dim;
      float value = 0;
      if (head < heads_) {
        const int64_t slot = int64_t{first_head_ + head} * a_.most_splits;
        const float* values = a_.partials + slot * Dim + column;
#pragma unroll 8
        for (int s = 0; s < splits_; ++s)
          value = __fmaf_rn(__ldcg(values + s * Dim), factors[head * kPhaseMaxSplits + s], value);
        value *= inverse[head];
      }
      deliver(head, column, value, turned);
      __syncthreads();
    }
  }

  // Rotates the heads of all threads back and writes them. Every thread has a value of a head, and
  // a warp has 32 columns of one.
  __device__ __forceinline__ void deliver(int head, int column, float value, float* turned) const {
    const auto& side = a_.coded.values;
    if (side.block != 0) {
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const float other = __shfl_xor_sync(~0u, value, distance);
        value = (lane_ & distance) != 0 ? other - value : value + other;
      }
      if (side.block > 32) {
        turned[threadIdx.x] = value;
        __syncthreads();
        const int own = column / 32;
        const float* of_head = turned + static_cast<int>(threadIdx.x) - 32 * own;
        value = 0;
#pragma unroll
        for (int w = 0; w < Dim / 32; ++w) {
          const float part = of_head[32 * w];
          value += (__popc(static_cast<unsigned>(w & own)) & 1) != 0 ? -part : part;
        }
      }
      value *= factor_of(side, column / 32);
    }
    if (head < heads_) this->write(first_head_ + head, column, value, 0);
  }

  int first_stored_, stored_;  // They are visible stored tiles.
  // Say whether the first positions are a tile of rows, and which tile is the first of rows in the
  // ring.
  int leading_, first_recent_;
  int row_warps_ = 0;    // This many warps have tiles of rows.
  int step_ = 1;         // It is the distance of this warp's tiles.
  bool newest_ = false;  // It says whether the newest position belongs to this block.
};

}  // namespace walsh::cuda
