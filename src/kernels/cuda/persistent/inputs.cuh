// Makes the inputs of a step's products. Every block makes them for itself, a k-tile of 256 columns
// per warp. If there are more k-tiles than warps, all blocks make them together through memory.
//
// RMSNorm divides all columns by the same number. Rotation is linear, and int8 values are relative
// to their group's largest, so only scales would change. Therefore the product's results are
// divided, and nothing waits for the sum of the squares.
#pragma once

#include "kernels/cuda/gemv/trellis_dot.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/rows/row_transform.cuh"

namespace walsh::cuda {

// Returns log2 of the number of lanes of a group of 32 or 128 columns.
__device__ __forceinline__ int group_lanes_log2(int group) {
  return group == 32 ? 2 : 4;
}

// Adds up the squares of a warp's values, eight per lane.
class SquareSum {
 public:
  // Adds squares in float, and then as integers relative to the largest of the lanes' sums, so that
  // adding them up is one instruction.
  __device__ __forceinline__ void take(const float (&v)[kLaneColumns]) {
    float sum = squares_of(v, 1.0f);
    uint32_t largest = __reduce_max_sync(~0u, __float_as_uint(sum));
    int down = 0;  // Values have been divided by two this many times.
    if (largest >= 0x7f000000u || largest < 0x10000000u) {  // Squares may be beyond float.
      uint32_t value = 0;
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        value = max(value, __float_as_uint(v[e]) & 0x7fffffffu);
      const auto exponent = static_cast<int>(__reduce_max_sync(~0u, value) >> 23);
      down = min(max(exponent, 1), 253) - 127;
      sum = squares_of(v, __uint_as_float(static_cast<uint32_t>(127 - down) << 23));
      largest = max(__reduce_max_sync(~0u, __float_as_uint(sum)), 0x10000000u);
    }
    const auto exponent = static_cast<int>(largest >> 23);
    // This is at most 2^26, so that the sum over 32 lanes stays below 2^32.
    squares_ = __float2uint_rn(sum * __uint_as_float(static_cast<uint32_t>(279 - exponent) << 23));
    // An exponent of 255 means infinity.
    exponent_ = exponent == 255 ? 0x7ff : exponent - 152 + 1023 + 2 * down;
  }

  // Returns the sum. All lanes call this and get the value.
  __device__ __forceinline__ double value() const {
    const double last_bit = __hiloint2double(exponent_ << 20, 0);
    return static_cast<double>(__reduce_add_sync(~0u, squares_)) * last_bit;
  }

 private:
  static __device__ __forceinline__ float squares_of(const float (&v)[kLaneColumns], float factor) {
    float part[2] = {};
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e) {
      const float x = v[e] * factor;
      part[e % 2] = fmaf(x, x, part[e % 2]);
    }
    return part[0] + part[1];
  }

  uint32_t squares_ = 0;  // It is this lane's sum, in units of 2^exponent_.
  int exponent_ = 0;      // It is biased as a double's exponent.
};

// Describes a k-tile of an input whose values are one row.
struct RowKTile {
  static constexpr bool kHeads = false;  // If true, norms may be missing.
  // If this is set, a long wait is for one value first. Programs with experts wait while the memory
  // has little to do, so polling all values keeps nothing else waiting.
  static constexpr bool kAwaitsOne = true;

  const ProgramPhase& phase;
  const int k_tile;  // It counts within the row.

  __device__ __forceinline__ const FormView& form() const { return phase.gemv.form; }
  __device__ __forceinline__ const uint8_t* signs() const { return phase.signs; }
  __device__ __forceinline__ int segment() const { return phase.segment; }
  __device__ __forceinline__ int width() const { return phase.gemv.in.width; }
  // These return where a lane's first value, and the first value of all, are in exchanged arrays.
  __device__ __forceinline__ int place(int lane) const { return begin() + lane * 4; }
  __device__ __forceinline__ int begin() const { return k_tile * kKTileColumns; }
  __device__ __forceinline__ void weigh(Quantized&) const {}
};

// Describes k-tiles in programs of other mixers, whose heads may have norms that are still missing.
template <typename KTile>
struct HeadKTile : KTile {
  static constexpr bool kHeads = true;
};

// Makes one k-tile of an input with a warp. What does not come from another phase is prepared while
// the rest is on its way. `KTile` is RowKTile, or describes a k-tile of an input with several rows.
template <typename KTile>
class InputKTile {
 public:
  __device__ __forceinline__ InputKTile(const ProgramPhase& phase, uint32_t epoch,
                                        const KTile& k_tile, int lane)
      : phase_(phase),
        in_(phase.gemv.in),
        at_(k_tile),
        form_(k_tile.form()),
        epoch_(epoch),
        lane_(lane),
        column_(k_tile.k_tile * kKTileColumns + lane * kLaneColumns) {}

  // Loads the k-tile's values, times gains, and calls `meanwhile` while they are on their way.
  template <typename Meanwhile>
  __device__ __forceinline__ void load(const Meanwhile& meanwhile) {
    const auto prepare = [&] {
      if (in_.gain && column_ < in_.width) prefetch(in_.gain + column_);
      if (at_.signs()) signs_ = at_.signs()[at_.k_tile * 32 + lane_];
      meanwhile();
    };
    if constexpr (KTile::kHeads) {
      if (phase_.head_shift > 0) return load_heads(prepare);
    }
    if (in_.up) {
      float v[2][kLaneColumns];
      read<2>({in_.x, in_.up}, prepare, v);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        v_[e] = silu(v[0][e]) * v[1][e];
    } else {
      float v[1][kLaneColumns];
      read<1>({in_.x}, prepare, v);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        v_[e] = v[0][e];
    }
    if (!in_.gain) return;
    float gain[kLaneColumns];
    load8_whole(in_.gain, column_, in_, gain);
    squares_.take(v_);
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v_[e] *= gain[e];
  }

  __device__ __forceinline__ Quantized quantize() {
    if (at_.segment() > 0) {
      rotate_k_tile<kLeastSegment>(at_.segment(), true, signs_, lane_, v_);
      return quantize_group(128);
    }
    rotate_columns(form_, at_.k_tile, signs_, lane_, v_);
    return form_.group == 32 ? quantize_group(32) : quantize_group(128);
  }

  // These return whether this lane writes the scale of its group, and which of the k-tile's scales
  // it is.
  __device__ __forceinline__ bool has_scale() const {
    return (lane_ & ((1 << group_lanes_log2(form_.group)) - 1)) == 0;
  }
  __device__ __forceinline__ int group() const {
    return lane_ >> group_lanes_log2(form_.group);
  }

  // Returns the sum of the squares of the k-tile's values before gains, to all lanes.
  __device__ __forceinline__ double squares() const {
    return squares_.value();
  }

 private:
  template <int Rows, typename Prepare>
  __device__ __forceinline__ void read(const float* const (&rows)[Rows], const Prepare& prepare,
                                       float (&v)[Rows][kLaneColumns]) const {
    if (!phase_.in[0].here) {
#pragma unroll
      for (int r = 0; r < Rows; ++r)
        load8_whole(rows[r], column_, in_, v[r]);
      prepare();
      return;
    }
    ExchangeReader<Rows> reader;
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      reader.from[r] = rows[r] + at_.place(lane_);
      reader.bits[r] = tag_bit(phase_.in[r], epoch_);
    }
    if (KTile::kAwaitsOne && phase_.after_attention)
      await_one(rows[Rows - 1] + at_.begin(), reader.bits[Rows - 1]);
    reader.read(column_ < at_.width(), prepare, v);
  }

  // Loads the values of heads and divides them by their norms. `up` has the squares of their
  // pieces, which are asked for with the values.
  template <typename Prepare>
  __device__ __forceinline__ void load_heads(const Prepare& prepare) {
    const int pieces = ((1 << phase_.head_shift) + kDeltaColumns - 1) / kDeltaColumns;
    const int all = squares_of_head(pieces),
              head = min(column_, in_.width - 1) >> phase_.head_shift;
    const float* from = in_.up + head * all;
    const uint32_t bit = tag_bit(phase_.in[1], epoch_);
    const auto value = [](uint32_t word) { return __uint_as_float(word & ~1u); };
    uint4 squares = {};
    float v[1][kLaneColumns];
    const auto prepare_with_squares = [&] {
      squares = exchanged_words(from);
      prepare();
    };
    read<1>({in_.x}, prepare_with_squares, v);
    float sum = 0;
#pragma unroll 1
    for (int i = 0;;) {
      while ((((squares.x ^ bit) | (squares.y ^ bit) | (squares.z ^ bit) | (squares.w ^ bit)) &
              1) != 0)
        squares = exchanged_words(from + i);
      sum += (value(squares.x) + value(squares.y)) + (value(squares.z) + value(squares.w));
      if ((i += kSquaresAtOnce) == all) break;
      squares = exchanged_words(from + i);
    }
    const float mean = sum * __uint_as_float(static_cast<uint32_t>(127 - phase_.head_shift) << 23);
    const float inverse = rsqrtf(mean + in_.eps);
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v_[e] = v[0][e] * inverse;
  }

  __device__ __forceinline__ Quantized quantize_group(int group) {
    GroupScale scale = group_scale(v_, group, lane_);
    Quantized part = quantize_plane(v_, scale, group, lane_);
    at_.weigh(part);
    return part;
  }

  const ProgramPhase& phase_;
  const InputView& in_;
  const KTile at_;
  const FormView& form_;
  const uint32_t epoch_;
  const int lane_, column_;
  uint32_t signs_ = 0;
  float v_[kLaneColumns];
  SquareSum squares_;
};

// Writes the int8 values and scale of a lane to their k-tile's place in shared memory. They are
// doubled if inputs lie doubled there (gemv/trellis_dot.cuh).
__device__ __forceinline__ void store_lane(const PairInputs& own, std::byte* k_tile, int lane,
                                           const Quantized& part, bool has_scale, int group,
                                           bool twice) {
  float second = static_cast<float>(part.sum) * part.scale;
  if (twice) {
    std::byte* const to = k_tile + doubled_place(lane_byte(lane) / kLaneColumns);
    own.store(to, doubled(part.low));
    own.store(to + 8, doubled(part.high));
    k_tile += kKTileColumns;
    second = zero_member(part.sum);
  } else {
    own.store(k_tile + lane_byte(lane), make_uint2(part.low, part.high));
  }
  if (!has_scale) return;
  own.store(k_tile + kKTileColumns + group * 8,
            make_uint2(__float_as_uint(part.scale), __float_as_uint(second)));
}

// Makes all k-tiles at the place of `own`. Every warp calls `meanwhile` while it waits, or, if
// `Later` is set, the warps that make a k-tile call it when they have done so. `k_tile_of` gives
// the InputKTile's k-tile by its number.
template <bool Later, typename KTileOf, typename Meanwhile>
__device__ __forceinline__ void make_own_inputs(const ProgramPhase& phase, bool twice,
                                                uint32_t epoch, const PairInputs& own, int warp,
                                                int lane, const KTileOf& k_tile_of,
                                                const Meanwhile& meanwhile) {
  const GemvArgs& args = phase.gemv;
  const int k_tile_bytes = phase.k_tile_bytes, i = own.k_tile_of(warp);
  own.expect(args.k_tiles, k_tile_bytes + (args.in.gain ? 8 : 0));
  if (i >= args.k_tiles) {
    meanwhile();
  } else {
    InputKTile k_tile(phase, epoch, k_tile_of(i), lane);
    k_tile.load([&] {
      if constexpr (!Later) meanwhile();
    });
    std::byte* const to = own.place() + i * k_tile_bytes;
    store_lane(own, to, lane, k_tile.quantize(), k_tile.has_scale(), k_tile.group(), twice);
    if (args.in.gain) {
      const uint64_t sum = __double_as_longlong(k_tile.squares());
      if (lane == 0) {
        own.store(squares_behind(own.place(), args.k_tiles, k_tile_bytes) + i,
                  make_uint2(static_cast<uint32_t>(sum), static_cast<uint32_t>(sum >> 32)));
      }
    }
    if constexpr (Later) meanwhile();
  }
  own.wait();
}

// Writes this block's k-tiles to where all blocks read them.
template <typename KTileOf>
__device__ __forceinline__ void make_shared_inputs(const ProgramPhase& phase, uint32_t epoch,
                                                   int warp, int lane, const KTileOf& k_tile_of) {
  const GemvArgs& args = phase.gemv;
  const auto blocks = static_cast<int>(gridDim.x);
  const uint32_t bit = tag_bit(phase.out[0], epoch);
#pragma unroll 1
  for (int i = last_first() + warp * blocks; i < args.k_tiles; i += kProgramWarps * blocks) {
    InputKTile k_tile(phase, epoch, k_tile_of(i), lane);
    k_tile.load([] {});
    const Quantized part = k_tile.quantize();
    exchange_packet(phase.packets + i * kKTilePackets + lane,
                    make_uint4(part.low, part.high, __float_as_uint(part.scale),
                               static_cast<uint32_t>(part.sum) << 1 | bit));
    if (args.in.gain) {
      const uint64_t sum = __double_as_longlong(k_tile.squares());
      if (lane == 0) {
        exchange_packet(
            phase.packets + args.k_tiles * kKTilePackets + i,
            make_uint4(static_cast<uint32_t>(sum), static_cast<uint32_t>(sum >> 32), 0, bit));
      }
    }
  }
}

// Reads what all blocks have made together. Thread i has packets i, i + 512, ... All loads are on
// their way before the first one is used.
__device__ __forceinline__ void read_shared_inputs(const ProgramPhase& phase, uint32_t epoch,
                                                   std::byte* k_tiles, double* squares) {
  constexpr int kThreads = kProgramWarps * 32, kAtOnce = 4;
  const GemvArgs& args = phase.gemv;
  const auto thread = static_cast<int>(threadIdx.x);
  const int k_tile_bytes = phase.k_tile_bytes, count = args.k_tiles * kKTilePackets;
  const int group_shift = group_lanes_log2(args.x_group);
  const uint32_t bit = tag_bit(phase.in[0], epoch);
  const auto missing = [&](const uint4& v) { return (v.w & 1) != bit; };
#pragma unroll 1
  for (int base = thread; base < count; base += kAtOnce * kThreads) {
    uint4 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      v[j] = exchanged_packet(phase.packets + min(base + j * kThreads, count - 1));
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int packet = min(base + j * kThreads, count - 1);
      while (missing(v[j]))
        v[j] = exchanged_packet(phase.packets + packet);
      std::byte* to = k_tiles + packet / kKTilePackets * k_tile_bytes;
      *reinterpret_cast<uint2*>(to + lane_byte(packet % 32)) = make_uint2(v[j].x, v[j].y);
      if ((packet & ((1 << group_shift) - 1)) != 0) continue;
      const float scale = __uint_as_float(v[j].z);
      reinterpret_cast<float2*>(to + kKTileColumns)[packet % 32 >> group_shift] =
          make_float2(scale, static_cast<float>(static_cast<int>(v[j].w) >> 1) * scale);
    }
  }
  if (args.in.gain && thread < args.k_tiles) {
    uint4 v;
    do {
      v = exchanged_packet(phase.packets + count + thread);
    } while (missing(v));
    squares[thread] = __longlong_as_double(static_cast<int64_t>(v.x | uint64_t{v.y} << 32));
  }
  __syncthreads();
}

// Returns whether float suffices for the root of this mean.
__device__ __forceinline__ bool is_common_mean(float mean) {
  return mean > 1e-30f && mean < 1e30f;
}

// Returns what results of a normed input are multiplied by. Whole warps call this.
__device__ __forceinline__ float norm_factor(const GemvArgs& args, const double* squares,
                                             int lane) {
  double share = 0;
  for (int k_tile = lane; k_tile < args.k_tiles; k_tile += 32)
    share += squares[k_tile];
  share *= args.in.inverse_width;
  auto mean = static_cast<float>(share);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    mean += __shfl_xor_sync(~0u, mean, distance);
  mean += args.in.eps;
  if (is_common_mean(mean)) return rsqrtf(mean);  // The error is within 2 units of the last place.
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    share += __shfl_xor_sync(~0u, share, distance);
  return static_cast<float>(rsqrt(share + static_cast<double>(args.in.eps)));
}

// Returns the same factor from the mean of all squares.
__device__ __forceinline__ float inverse_norm(double mean, float eps) {
  const float near = static_cast<float>(mean) + eps;
  return is_common_mean(near) ? rsqrtf(near)
                              : static_cast<float>(rsqrt(mean + static_cast<double>(eps)));
}

}  // namespace walsh::cuda
