// Dequantizes coded weights to 16-bit floats in row-major order; bound by memory.
#include <cuda_bf16.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/weights/dequantize.h"
#include "kernels/cuda/weights/pass_view.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace detail {
namespace {

// They take consecutive k-tiles of 256 columns, at most one segment of 1024.
constexpr int kWarps = 4;

struct Target {
  uint16_t* data = nullptr;  // starts with row row_begin
  int row_begin = 0, row_end = 0;
  int cols = 0;  // columns, and the stride
  bool bf16 = false;
};

__device__ uint32_t pack_pair(float a, float b, bool bf16) {
  if (bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Joins the k-tiles of segments of 512 and 1024 columns, which belong to neighbouring warps. All
// threads of the block take part.
__device__ void join_k_tiles(float (&value)[2][4][8], const KTileShape& shape, float* shared) {
#pragma unroll 1
  for (int step = 1; step <= 2; ++step) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 64; ++k)
      shared[k * (kWarps * 32) + threadIdx.x] = value[k / 32][k / 8 % 4][k % 8];
    __syncthreads();
    if (!(step == 1 ? shape.join512 : shape.join1024)) continue;
    const float sign = threadIdx.x / 32 & step ? -1.0f : 1.0f;
    const float* other = shared + (threadIdx.x ^ (32 * step));
#pragma unroll
    for (int k = 0; k < 64; ++k) {
      float& v = value[k / 32][k / 8 % 4][k % 8];
      v = __fmaf_rn(sign, v, other[k * (kWarps * 32)]);
    }
  }
}

// The part of a pass's description that a warp needs besides codes; the same for every tile.
struct KTileState {
  KTileShape shape;
  uint32_t signs[8] = {};

  __device__ KTileState(const PassView& w, int k_tile, int lane) {
    if (w.block == 0) return;
    shape = k_tile_shape(k_tile, w);
    k_tile_signs(k_tile, w, lane, signs);
  }
};

// Row g + 8 `half` of every lane in the output's basis, without signs.
template <typename Decoder>
__device__ void row_values(const PassView& w, const TileStage<Decoder>& stage, int half,
                           const KTileShape& shape, int lane, float* shared,
                           float (&value)[2][4][8]) {
  uint32_t levels[2][4][4];
  decode_levels<Decoder>(w, stage, lane, half, levels);
  if (w.block == 0) {
    plain_values(levels, stage, w, half, lane, value);
    return;
  }
  rotate_back(levels, stage, w, half, shape, lane, value);
  if (w.block > kKTileColumns) join_k_tiles(value, shape, shared);
}

__device__ void flip_signs(const uint32_t (&signs)[8], int t, float (&value)[2][4][8]) {
#pragma unroll
  for (int k = 0; k < 64; ++k) {
    float& v = value[k / 32][k / 8 % 4][k % 8];
    const int r = k % 8;
    const uint32_t flip = signs[k / 8] << (4 * t + r / 2 + (r % 2 ? 0 : 16)) & 0x80000000u;
    v = __uint_as_float(__float_as_uint(v) ^ flip);
  }
}

__device__ void store_row(const float (&value)[2][4][8], const uint32_t (&signs)[8],
                          const Target& target, int row, int k_tile, int t) {
  if (row < target.row_begin || row >= target.row_end) return;
  uint16_t* out = target.data + static_cast<int64_t>(row - target.row_begin) * target.cols;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int column = k_tile * kKTileColumns + 32 * k;
    if (column >= target.cols) break;
    const float* v = value[k / 4][k % 4];
    uint32_t packed[4];
#pragma unroll
    for (int p = 0; p < 4; ++p)
      packed[p] =
          pack_pair(v[2 * p], v[2 * p + 1], target.bf16) ^ (signs[k] << (4 * t + p) & 0x80008000u);
    // An explicit store instruction: a plain assignment is compiled to four stores, which write
    // each sector in four parts.
    __stcg(reinterpret_cast<uint4*>(out + column + 8 * t),
           make_uint4(packed[0], packed[1], packed[2], packed[3]));
  }
}

// Stands for the decoder of a second pass where there is none.
struct NoPass {
  static constexpr int kVectors = 0;
};

// A warp's ring of stages; a residual format has a second pass in each.
template <typename First, typename Second>
struct Stage {
  TileStage<First> first;
  TileStage<Second> second;
};
template <typename First>
struct Stage<First, NoPass> {
  TileStage<First> first;
};
template <typename First, typename Second>
constexpr int kStages = First::kVectors + Second::kVectors > 4 ? 2 : 3;

template <typename First, typename Second>
__global__ void __launch_bounds__(kWarps * 32, Second::kVectors ? 2 : 3)
    dequantize_kernel(const __grid_constant__ PassView first,
                      const __grid_constant__ PassView second,
                      const __grid_constant__ Target target) {
  extern __shared__ float shared[];
  constexpr bool kResidual = Second::kVectors > 0;
  constexpr int kRing = kStages<First, Second>;
  __shared__ Stage<First, Second> stages[kWarps][kRing];
  auto& ring = stages[threadIdx.x / 32];
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // A warp beyond the last k-tile repeats it without storing, because the block synchronizes.
  const int wanted = blockIdx.x * kWarps + threadIdx.x / 32;
  const int k_tile = min(wanted, first.k_tiles - 1);
  const int begin = target.row_begin / 16 + blockIdx.y, end = (target.row_end + 15) / 16;
  const auto load = [&](int k) {
    const int tile = begin + k * static_cast<int>(gridDim.y);
    if (tile < end) {
      load_stage(ring[k % kRing].first, first, tile, k_tile, lane);
      if constexpr (kResidual) load_stage(ring[k % kRing].second, second, tile, k_tile, lane);
    }
    copy_commit();
  };
  for (int k = 0; k < kRing - 1; ++k)
    load(k);
  if constexpr (First::kTable) {
    First::load_table(first.table);
    __syncthreads();
  }
  const KTileState state(first, k_tile, lane);
  const KTileState state2(kResidual ? second : PassView(), k_tile, lane);
  for (int k = 0, tile = begin; tile < end; ++k, tile += gridDim.y) {
    copy_wait<kRing - 2>();
    __syncwarp();
    load(k + kRing - 1);
    const auto& stage = ring[k % kRing];
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      float value[2][4][8];
      row_values<First>(first, stage.first, half, state.shape, lane, shared, value);
      const int row = wanted == k_tile ? tile * 16 + g + 8 * half : target.row_end;
      if constexpr (!kResidual) {
        store_row(value, state.signs, target, row, k_tile, t);
      } else {
        float residual[2][4][8];
        row_values<Second>(second, stage.second, half, state2.shape, lane, shared, residual);
        flip_signs(state.signs, t, value);
        flip_signs(state2.signs, t, residual);
#pragma unroll
        for (int e = 0; e < 64; ++e)
          value[e / 32][e / 8 % 4][e % 8] += residual[e / 32][e / 8 % 4][e % 8];
        constexpr uint32_t kNone[8] = {};
        store_row(value, kNone, target, row, k_tile, t);
      }
    }
    __syncwarp();  // the stage may be refilled
  }
}

template <typename First, typename Second>
void launch(const PassView& first, const PassView& second, const Target& target, Stream stream) {
  const int resident = current_device().multiprocessors * (Second::kVectors ? 2 : 3);
  const int windows = (first.k_tiles + kWarps - 1) / kWarps;
  const int tiles = (target.row_end + 15) / 16 - target.row_begin / 16;
  const int rows = std::max(1, resident / windows), rounds = (tiles + rows - 1) / rows;
  const dim3 grid(static_cast<unsigned>(windows),
                  static_cast<unsigned>((tiles + rounds - 1) / rounds));
  const bool wide = std::max(first.block, second.block) > kKTileColumns;
  const int shared = wide ? 64 * kWarps * 32 * static_cast<int>(sizeof(float)) : 0;
  const auto kernel = dequantize_kernel<First, Second>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "dequantize");
  kernel<<<grid, kWarps * 32, static_cast<size_t>(shared), stream>>>(first, second, target);
  check_launch("dequantize");
}

int shift_of(int64_t group, int64_t cols) {
  if (group >= cols) return 31;  // one per row
  return std::countr_zero(static_cast<uint64_t>(group));
}

}  // namespace

PassView pass_view(const RowMatmul& product, int pass, bool keep_rotated) {
  const Matrix& m = *product.pass[pass];
  const Rotation& rotation = product.rotation[pass];
  const bool rotated = rotation.kind != RotationKind::none && !keep_rotated;
  if (m.cols % kKTileColumns != 0 || product.cols % 32 != 0 || product.cols > m.cols ||
      (rotated && rotation.kind != RotationKind::hadamard)) {
    throw Error(ErrorCode::internal, "GPU weights",
                std::to_string(product.cols) + " of " + std::to_string(m.cols) +
                    " columns, rotation " + std::string(rotation_kind_name(rotation.kind)));
  }
  PassView view;
  view.codes = m.codes.as<const uint4>();
  view.scales = m.scales.as<const uint32_t>();
  view.offsets = m.offset_group != 0 ? m.offsets.as<const uint32_t>() : nullptr;
  view.k_tiles = static_cast<int>(m.cols / kKTileColumns);
  view.groups = static_cast<int>(m.groups());
  view.group_shift = shift_of(m.group, m.cols);
  if (m.offset_group != 0) {
    view.offset_groups = static_cast<int>((m.cols + m.offset_group - 1) / m.offset_group);
    view.offset_shift = shift_of(m.offset_group, m.cols);
  }
  if (!m.row_factors.empty()) {  // they are treated as offsets of a single group
    view.offsets = m.row_factors.as<const uint32_t>();
    view.offset_groups = 1;
    view.offset_shift = shift_of(m.cols, m.cols);
  }
  view.level_low = m.code.low;
  view.level_high = m.code.high;
  view.unit = m.code.unit;
  view.table = m.table.as();
  view.cols = static_cast<int>(product.cols);
  if (rotated) {
    view.block = rotation.block;
    view.full_cols = view.cols / view.block * view.block;
    view.seed = rotation.seed;
    view.signs = rotation.signs;
  }
  return view;
}

}  // namespace detail

void dequantize(const RowMatmul& product, Basis basis, DType type, int64_t row_begin,
                int64_t row_end, void* out, Stream stream) {
  using namespace detail;
  const bool residual = product.pass[1] != nullptr;
  if (product.pass[0] == nullptr || (residual && basis == Basis::rotated) || type == DType::f32 ||
      row_begin % kTileRows != 0 || row_begin < 0 || row_end > product.pass[0]->rows) {
    throw Error(ErrorCode::internal, "dequantize", "not a coded product, or rows out of range");
  }
  if (row_begin >= row_end) return;
  const bool keep = basis == Basis::rotated;
  const PassView first = pass_view(product, 0, keep);
  const PassView second = residual ? pass_view(product, 1, keep) : PassView();
  const Target target{static_cast<uint16_t*>(out), static_cast<int>(row_begin),
                      static_cast<int>(row_end), first.cols, type == DType::bf16};
  const DecoderKind decoder = product.pass[0]->code.decoder;
  if (!residual) {
    return with_decoder(decoder, [&]<typename Decoder>() {
      launch<Decoder, NoPass>(first, second, target, stream);
    });
  }
  const auto pair = std::pair(decoder, product.pass[1]->code.decoder);
  if (pair == std::pair(DecoderKind::scalar3, DecoderKind::scalar2)) {
    launch<ScalarDecoder<3>, ScalarDecoder<2>>(first, second, target, stream);
  } else if (pair == std::pair(DecoderKind::scalar4, DecoderKind::scalar2)) {
    launch<ScalarDecoder<4>, ScalarDecoder<2>>(first, second, target, stream);
  } else if (pair == std::pair(DecoderKind::scalar4, DecoderKind::scalar4)) {
    launch<ScalarDecoder<4>, ScalarDecoder<4>>(first, second, target, stream);
  } else {
    throw Error(ErrorCode::internal, "dequantize", "no kernel for these two passes");
  }
}

}  // namespace walsh::cuda
