// Makes the inputs of a step's products for several rows (persistent/inputs.cuh has those for one).
//
// In shared memory a k-tile is [chunk of 128 columns][row][128], with 16-byte pieces swapped in odd
// rows, then (scale, sum * scale) as [group][8], of which the first ones are those of the rows. The
// sums of squares behind all k-tiles are [row][k-tile]. A warp makes a k-tile of one row, or of two
// rows at a time where there are more k-tiles than warps.
#pragma once

#include "kernels/cuda/persistent/inputs.cuh"

namespace walsh::cuda {

// Makes a k-tile of `Count` rows, from row `row` on.
template <int Count>
class InputRows {
 public:
  __device__ __forceinline__ InputRows(const ProgramPhase& phase, uint32_t epoch, int k_tile,
                                       int row, int lane)
      : phase_(phase),
        in_(phase.gemv.in),
        epoch_(epoch),
        k_tile_(k_tile),
        row_(row),
        lane_(lane),
        column_(k_tile * kKTileColumns + lane * kLaneColumns) {}

  // Loads the rows' values, times gains, and calls `meanwhile` while they are on their way.
  template <typename Meanwhile>
  __device__ __forceinline__ void load(const Meanwhile& meanwhile) {
    const auto prepare = [&] {
      if (in_.gain && column_ < in_.width) prefetch(in_.gain + column_);
      if (phase_.signs) signs_ = phase_.signs[k_tile_ * 32 + lane_];
      meanwhile();
    };
    if (in_.up) {
      float v[2 * Count][kLaneColumns];
      read<2>(prepare, v);
#pragma unroll
      for (int r = 0; r < Count; ++r) {
#pragma unroll
        for (int e = 0; e < kLaneColumns; ++e)
          v_[r][e] = silu(v[r][e]) * v[Count + r][e];
      }
    } else {
      read<1>(prepare, v_);
    }
    if (!in_.gain) return;
    float gain[kLaneColumns];
    load8_whole(in_.gain, column_, in_, gain);
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      squares_[r].take(v_[r]);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        v_[r][e] *= gain[e];
    }
  }

  __device__ __forceinline__ Quantized quantize(int r) {
    const FormView& form = phase_.gemv.form;
    if (phase_.segment > 0) {
      rotate_k_tile<kLeastSegment>(phase_.segment, true, signs_, lane_, v_[r]);
      return quantize_group(r, 128);
    }
    rotate_columns(form, k_tile_, signs_, lane_, v_[r]);
    return form.group == 32 ? quantize_group(r, 32) : quantize_group(r, 128);
  }

  // These return whether this lane writes the scale of its group, and which of the k-tile's scales
  // it is.
  __device__ __forceinline__ bool has_scale() const {
    return (lane_ & ((1 << group_lanes_log2(phase_.gemv.form.group)) - 1)) == 0;
  }
  __device__ __forceinline__ int group() const {
    return lane_ >> group_lanes_log2(phase_.gemv.form.group);
  }
  // Returns the sum of the squares of a row's values before gains, to all lanes.
  __device__ __forceinline__ double squares(int r) const {
    return squares_[r].value();
  }

 private:
  // Reads the rows of x, then those of up if `Arrays` is 2.
  template <int Arrays, typename Prepare>
  __device__ __forceinline__ void read(const Prepare& prepare,
                                       float (&v)[Arrays * Count][kLaneColumns]) const {
    if (!phase_.in[0].here) {
#pragma unroll
      for (int i = 0; i < Arrays * Count; ++i) {
        const float* from = i < Count ? in_.x : in_.up;
        load8_whole(from + (row_ + i % Count) * in_.ldx, column_, in_, v[i]);
      }
      prepare();
      return;
    }
    const int place = k_tile_ * kKTileColumns + row_ * exchange_stride(in_.width);
    ExchangeReader<Arrays * Count> reader;
#pragma unroll
    for (int i = 0; i < Arrays * Count; ++i) {
      const float* from = (i < Count ? in_.x : in_.up) + place;
      reader.from[i] = from + i % Count * exchange_stride(in_.width) + lane_ * 4;
      reader.bits[i] = tag_bit(phase_.in[i / Count], epoch_);
    }
    if (phase_.after_attention) {
      const float* from = (Arrays == 2 ? in_.up : in_.x) + place;
      await_one(from, reader.bits[(Arrays - 1) * Count]);
    }
    reader.read(column_ < in_.width, prepare, v);
  }

  __device__ __forceinline__ Quantized quantize_group(int r, int group) {
    GroupScale scale = group_scale(v_[r], group, lane_);
    return quantize_plane(v_[r], scale, group, lane_);
  }

  const ProgramPhase& phase_;
  const InputView& in_;
  const uint32_t epoch_;
  const int k_tile_, row_, lane_, column_;
  uint32_t signs_ = 0;
  float v_[Count][kLaneColumns];
  SquareSum squares_[Count];
};

// Returns the place of a lane's eight int8 values of a row in a k-tile.
template <int Rows>
__device__ __forceinline__ int lane_byte_of_row(int lane, int row) {
  const int in_chunk = (lane % 4) * 32 + (lane / 4 % 4) * 8;
  return (lane / 16 * Rows + row) * 128 + (in_chunk ^ (row & 1) * 16);
}

// Returns the place of a group's scale of a row in a k-tile.
template <int Rows>
__device__ __forceinline__ int scale_byte_of_row(int group, int row) {
  return Rows * kKTileColumns + (group * 8 + row) * 8;
}

// Makes all k-tiles of all rows at the place of `own`. Every warp calls `meanwhile` while it waits.
template <int Rows, typename Meanwhile>
__device__ __forceinline__ void make_own_rows(const ProgramPhase& phase, uint32_t epoch,
                                              const PairInputs& own, int warp, int lane,
                                              const Meanwhile& meanwhile) {
  constexpr int kAtOnce = Rows == 2 ? 1 : 2, kParts = Rows / kAtOnce;
  const GemvArgs& args = phase.gemv;
  const int parts = args.k_tiles * kParts;
  own.expect(parts, (kKTileColumns + (64 >> args.x_shift) + (args.in.gain ? 8 : 0)) * kAtOnce);
  int i = own.k_tile_of(warp);
  bool first = true;
  if (i >= parts) meanwhile();
#pragma unroll 1
  for (; i < parts; i += own.at_a_time(), first = false) {
    const int k_tile = i / kParts, row = i % kParts * kAtOnce;
    InputRows<kAtOnce> rows(phase, epoch, k_tile, row, lane);
    rows.load([&] {
      if (first) meanwhile();
    });
    std::byte* const to = own.place() + k_tile * phase.k_tile_bytes;
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const Quantized part = rows.quantize(r);
      own.store(to + lane_byte_of_row<Rows>(lane, row + r), make_uint2(part.low, part.high));
      if (!rows.has_scale()) continue;
      own.store(to + scale_byte_of_row<Rows>(rows.group(), row + r),
                make_uint2(__float_as_uint(part.scale),
                           __float_as_uint(static_cast<float>(part.sum) * part.scale)));
    }
    if (!args.in.gain) continue;
    double* const squares = squares_behind(own.place(), args.k_tiles, phase.k_tile_bytes) + k_tile;
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      const uint64_t sum = __double_as_longlong(rows.squares(r));
      if (lane == 0) {
        own.store(squares + (row + r) * args.k_tiles,
                  make_uint2(static_cast<uint32_t>(sum), static_cast<uint32_t>(sum >> 32)));
      }
    }
  }
  own.wait();
}

// The values of a k-tile of a row are 16 packets: lanes l and l + 4 of a group of eight give one. A
// tag takes a bit of each packet. The bits that were there are in one more packet, with the scales
// and sums of the two groups. First come the values of all rows' k-tiles, then what belongs to
// them, then the sums of squares.
inline constexpr int kValuePackets = 16;
static_assert(kValuePackets + 2 == kRowPackets);

// Returns the lane that gives packet i of a k-tile of a row.
__device__ __forceinline__ int lane_of_packet(int i) {
  return i / 8 * 16 + i % 8 / 2 + i % 2 * 8;
}

// Writes this block's k-tiles to where all blocks read them.
template <int Rows>
__device__ __forceinline__ void make_shared_rows(const ProgramPhase& phase, uint32_t epoch,
                                                 int warp, int lane) {
  const GemvArgs& args = phase.gemv;
  const int blocks = static_cast<int>(gridDim.x), parts = args.k_tiles * Rows;
  const uint32_t bit = tag_bit(phase.out[0], epoch);
  const bool gives = (lane & 4) == 0;
  uint4* const values = phase.packets + lane / 16 * 8 + lane % 4 * 2 + lane / 8 % 2;
  uint4* const rest = phase.packets + parts * kValuePackets;
#pragma unroll 1
  for (int i = last_first() + warp * blocks; i < parts; i += kProgramWarps * blocks) {
    InputRows<1> rows(phase, epoch, i / Rows, i % Rows, lane);
    rows.load([] {});
    const Quantized part = rows.quantize(0);
    uint4 packet = make_uint4(part.low, part.high, __shfl_xor_sync(~0u, part.low, 4),
                              __shfl_xor_sync(~0u, part.high, 4));
    const uint32_t bits = __ballot_sync(~0u, gives && (packet.w & 1) != 0);
    packet.w = (packet.w & ~1u) | bit;
    if (gives) exchange_packet(values + i * kValuePackets, packet);
    const uint32_t scale = __shfl_sync(~0u, __float_as_uint(part.scale), 16);
    const auto sum = static_cast<uint32_t>(__shfl_sync(~0u, part.sum, 16));
    if (lane == 0) {
      const uint32_t sums = __byte_perm(static_cast<uint32_t>(part.sum), sum, 0x5410);
      exchange_packet(rest + i,
                      make_uint4(__float_as_uint(part.scale), scale, sums, bits << 1 | bit));
    }
    if (args.in.gain) {
      const uint64_t squares = __double_as_longlong(rows.squares(0));
      if (lane == 0) {
        exchange_packet(rest + parts + i, make_uint4(static_cast<uint32_t>(squares),
                                                     static_cast<uint32_t>(squares >> 32), 0, bit));
      }
    }
  }
}

// Reads what all blocks have made together. A warp reads the packets of two k-tiles of a row at a
// time. All loads of a round are on their way before the first one is used.
template <int Rows>
__device__ __forceinline__ void read_shared_rows(const ProgramPhase& phase, uint32_t epoch,
                                                 std::byte* k_tiles, double* squares) {
  constexpr int kAtOnce = 4;
  const GemvArgs& args = phase.gemv;
  auto thread = static_cast<int>(threadIdx.x);
  asm volatile("" : "+r"(thread));  // What follows from it is not kept for all phases.
  const int lane = thread % 32, warp = thread / 32;
  const int parts = args.k_tiles * Rows, pairs = parts / 2;
  const uint32_t bit = tag_bit(phase.in[0], epoch);
  const uint4* const rest = phase.packets + parts * kValuePackets;
  const auto await = [&](const uint4* from, uint4& v) {
    while ((v.w & 1) != bit)
      v = exchanged_packet(from);
  };
  // A lane has the scales of one of the k-tiles of a round.
  const auto part_of_lane = [&](int base) {
    return 2 * (base + lane / 2 * kProgramWarps) + lane % 2;
  };
  const auto place_of = [&](int part) { return k_tiles + part / Rows * phase.k_tile_bytes; };
  const int piece = lane % 16, stolen = lane_of_packet(piece) + 1;
#pragma unroll 1
  for (int base = warp; base < pairs; base += kAtOnce * kProgramWarps) {
    uint4 v[kAtOnce] = {}, side = {};
    const uint4* const of_lane = rest + part_of_lane(base);
    const bool has_side = lane < 2 * kAtOnce && part_of_lane(base) < parts;
    if (has_side) side = exchanged_packet(of_lane);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int pair = base + j * kProgramWarps;
      if (pair < pairs) v[j] = exchanged_packet(phase.packets + pair * 2 * kValuePackets + lane);
    }
    if (has_side) {
      await(of_lane, side);
      const int part = part_of_lane(base);
      auto* scales =
          reinterpret_cast<float2*>(place_of(part) + scale_byte_of_row<Rows>(0, part % Rows));
      const float first = __uint_as_float(side.x), second = __uint_as_float(side.y);
      const auto sum = [](uint32_t half) { return static_cast<float>(static_cast<int16_t>(half)); };
      scales[0] = make_float2(first, sum(side.z & 0xffff) * first);
      scales[8] = make_float2(second, sum(side.z >> 16) * second);
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int pair = base + j * kProgramWarps;
      const int part = 2 * pair + lane / 16, row = part % Rows;
      const uint32_t bits = __shfl_sync(~0u, side.w, 2 * j + lane / 16);
      if (pair >= pairs) continue;
      await(phase.packets + pair * 2 * kValuePackets + lane, v[j]);
      v[j].w = (v[j].w & ~1u) | (bits >> stolen & 1);
      std::byte* to =
          place_of(part) + (piece / 8 * Rows + row) * 128 + (piece % 8 ^ (row & 1)) * 16;
      *reinterpret_cast<uint4*>(to) = v[j];
    }
  }
  if (args.in.gain && thread < parts) {
    const uint4* from = rest + parts + thread;
    uint4 v = exchanged_packet(from);
    await(from, v);
    squares[thread % Rows * args.k_tiles + thread / Rows] =
        __longlong_as_double(static_cast<int64_t>(v.x | uint64_t{v.y} << 32));
  }
  __syncthreads();
}

// Returns norm_factor() of one row. Half warps, which may have different rows, call it.
__device__ __forceinline__ float norm_factor_of_row(const GemvArgs& args, const double* squares,
                                                    int row, int lane) {
  squares += row * args.k_tiles;
  double share = 0;
  for (int k_tile = lane % 16; k_tile < args.k_tiles; k_tile += 16)
    share += squares[k_tile];
  share *= args.in.inverse_width;
  auto mean = static_cast<float>(share);
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2)
    mean += __shfl_xor_sync(~0u, mean, distance);
  mean += args.in.eps;
  if (!__any_sync(~0u, !is_common_mean(mean))) return rsqrtf(mean);
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2)
    share += __shfl_xor_sync(~0u, share, distance);
  return inverse_norm(share, args.in.eps);
}

}  // namespace walsh::cuda
