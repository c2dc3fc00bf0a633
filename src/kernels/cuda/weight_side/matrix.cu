// Runs GEMM that rotates weights back, with 128 rows by 128 vectors per block (32 vectors if a
// block has less than 165 KiB of shared memory). Each warp decodes 16 rows of a k-tile of 256
// columns, rotates them back in registers, and rounds them to bf16, already in the order of tensor
// core fragments. Inputs come through shared memory, one k-tile ahead.
#include <cuda_bf16.h>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/weight_side/kernels.h"
#include "walsh/error.h"

namespace walsh::cuda::detail {
namespace {

constexpr int kWarps = 8;                  // Each has a tile of 16 rows.
constexpr int kUnits = kKTileColumns / 8;  // A row of a k-tile has this many pieces of 16 bytes.

// Piece u of 16 bytes of vector v is stored at u ^ 4 (v % 2), so that reads of two vectors use
// different banks.
template <int Vectors>
using InputKTile = uint4[Vectors][kUnits];

__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <int Vectors>
__device__ void load_inputs(const PassView& w, const WeightSideIo& io, int k_tile, int first,
                            InputKTile<Vectors>& to) {
  for (int k = threadIdx.x; k < Vectors * kUnits; k += kWarps * 32) {
    const int v = k / kUnits, u = k % kUnits, column = k_tile * kKTileColumns + 8 * u;
    const bool valid = first + v < io.m && column < w.cols;
    const auto* from =
        static_cast<const __nv_bfloat16*>(io.x) + (valid ? (first + v) * io.ldx + column : 0);
    const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(&to[v][u ^ 4 * (v % 2)]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
  }
  copy_commit();
}

// Makes the fragments [c][i][s] of both rows of a lane. Their k = 2 t, 2 t + 1, 2 t + 8, 2 t + 9
// are columns 128 c + 32 i + 8 t + 4 s + (0..3).
template <typename Decoder>
__device__ __forceinline__ void make_fragments(const PassView& w, const TileStage<Decoder>& stage,
                                               int k_tile, int lane, uint32_t (&a)[2][4][2][4]) {
  const KTileShape shape = k_tile_shape(k_tile, w);
  uint32_t signs[8];
  k_tile_signs(k_tile, w, lane, signs);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t levels[2][4][4];
    float value[2][4][8];
    decode_levels<Decoder>(w, stage, lane, half, levels);
    rotate_back(levels, stage, w, half, shape, lane, value);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const int c = k / 16, i = k / 4 % 4, p = k % 4;
      const __nv_bfloat162 pair = __floats2bfloat162_rn(value[c][i][2 * p], value[c][i][2 * p + 1]);
      a[c][i][p / 2][p % 2 * 2 + half] = *reinterpret_cast<const uint32_t*>(&pair) ^
                                         (signs[4 * c + i] << (4 * (lane % 4) + p) & 0x80008000u);
    }
  }
}

template <int Vectors>
__device__ __forceinline__ void multiply_k_tile(const uint32_t (&a)[2][4][2][4],
                                                const InputKTile<Vectors>& x, int lane,
                                                float (&y)[Vectors / 8][4]) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
#pragma unroll
    for (int n = 0; n < Vectors / 8; ++n) {
      const uint4 b = x[8 * n + g][(4 * k + t) ^ 4 * (g % 2)];
      mma_bf16(y[n], a[k / 4][k % 4][0], b.x, b.y);
      mma_bf16(y[n], a[k / 4][k % 4][1], b.z, b.w);
    }
  }
}

template <int Blocks>
__device__ void store_tile(const WeightSideIo& io, int tile, int first, int lane,
                           const float (&y)[Blocks][4]) {
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int row = tile * 16 + lane / 4 + e / 2 * 8;
    if (row >= io.rows) continue;
    const float bias = io.bias != nullptr ? io.bias[row] : 0.0f;
#pragma unroll
    for (int n = 0; n < Blocks; ++n) {
      const int v = first + 8 * n + 2 * (lane % 4) + e % 2;
      if (v >= io.m) continue;
      float* out = io.y + v * io.ldy + row;
      *out = (io.add ? *out + bias : bias) + y[n][e];
    }
  }
}

template <typename Decoder, int Vectors>
struct Shared {
  InputKTile<Vectors> x[2];
  TileStage<Decoder> stages[kWarps][2];
};

template <typename Decoder, int Vectors>
__global__ void __launch_bounds__(kWarps * 32)
    weight_matrix_kernel(const __grid_constant__ PassView w,
                         const __grid_constant__ WeightSideIo io) {
  extern __shared__ __align__(16) unsigned char weight_shared[];
  auto& shared = *reinterpret_cast<Shared<Decoder, Vectors>*>(weight_shared);
  wait_previous_kernel();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * Vectors;
  const int tile = blockIdx.y * kWarps + warp;
  // The block synchronizes, so no warp may leave early.
  const int read = min(tile, (io.rows + 15) / 16 - 1);
  float y[Vectors / 8][4] = {};
  load_stage(shared.stages[warp][0], w, read, 0, lane);
  copy_commit();
  load_inputs<Vectors>(w, io, 0, first, shared.x[0]);
  for (int k_tile = 0; k_tile < w.k_tiles; ++k_tile) {
    copy_wait<1>();  // The codes have arrived; inputs come after them.
    __syncwarp();
    uint32_t a[2][4][2][4];
    make_fragments<Decoder>(w, shared.stages[warp][k_tile % 2], k_tile, lane, a);
    copy_wait<0>();
    __syncthreads();  // This k-tile has arrived, and all warps are done with the last one.
    if (k_tile + 1 < w.k_tiles) {
      load_stage(shared.stages[warp][(k_tile + 1) % 2], w, read, k_tile + 1, lane);
      copy_commit();
      load_inputs<Vectors>(w, io, k_tile + 1, first, shared.x[(k_tile + 1) % 2]);
    }
    multiply_k_tile<Vectors>(a, shared.x[k_tile % 2], lane, y);
  }
  store_tile(io, tile, first, lane, y);
}

template <typename Decoder, int Vectors>
void launch_vectors(const PassView& w, const WeightSideIo& io, Stream stream) {
  const dim3 grid(static_cast<unsigned>((io.m + Vectors - 1) / Vectors),
                  static_cast<unsigned>((io.rows + kWarps * 16 - 1) / (kWarps * 16)));
  cuda::launch("weight-side product", weight_matrix_kernel<Decoder, Vectors>,
               {grid, dim3(kWarps * 32), sizeof(Shared<Decoder, Vectors>)}, stream, w, io);
}

template <typename Decoder>
void launch_matrix(const PassView& w, const WeightSideIo& io, Stream stream) {
  if (sizeof(Shared<Decoder, 128>) <= current_device().shared_bytes) {
    launch_vectors<Decoder, 128>(w, io, stream);
  } else {
    launch_vectors<Decoder, 32>(w, io, stream);
  }
}

}  // namespace

void weight_side_matrix(DecoderKind decoder, const PassView& w, const WeightSideIo& io,
                        Stream stream) {
  with_decoder(decoder, [&]<typename Decoder>() {
    if constexpr (Decoder::kVectors <= kWeightSideVectorsOfCodes && !Decoder::kTable &&
                  !kIsTrellis<Decoder>) {
      launch_matrix<Decoder>(w, io, stream);
    } else {
      throw Error(ErrorCode::internal, "weight-side product", "no kernel for this code");
    }
  });
}

}  // namespace walsh::cuda::detail
