// Inputs of products: one warp per 256 columns (1,024 where the Hadamard block is larger), every
// block sums the squares of the whole row for itself.
#include <algorithm>
#include <string>
#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "kernels/cuda/rows/form_view.h"
#include "kernels/cuda/rows/row_transform.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct Forms {
  FormView form[kMaxForms];
};

// Stages of distance 256 and 512 between the k-tiles of a span.
template <int Span>
__device__ void rotate_span(const int (&size)[Span], float (&v)[Span][kLaneColumns]) {
#pragma unroll
  for (int h = 1; h < Span; h *= 2) {
#pragma unroll
    for (int u = 0; u < Span; ++u) {
      if ((u & h) != 0 || size[u] <= h * kKTileColumns) continue;
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        butterfly(v[u][e], v[u | h][e]);
    }
  }
}

constexpr int kPrepareWarps = 8;

// 1 / rms of input t for all threads of the block. A warp has two shares, whose loads are on their
// way together.
__device__ float row_inverse_rms(const InputView& in, int64_t t, int warp, int lane) {
  constexpr int kParts = kShares / kPrepareWarps;
  __shared__ double shares[kShares];
  double sum[kParts] = {};
  const bool plain = in.vectors && !in.up;  // no branch between the loads
  for (int k_tile = warp; k_tile * kKTileColumns < in.width; k_tile += kShares) {
    const int column = k_tile * kKTileColumns + lane * kLaneColumns;
    constexpr int kStep = kPrepareWarps * kKTileColumns;
    float v[kParts][kLaneColumns];
    if (plain) {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        load8_whole(in.x + t * in.ldx, column + p * kStep, in, v[p]);
    } else {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        load_input(in, t, column + p * kStep, v[p]);
    }
#pragma unroll
    for (int p = 0; p < kParts; ++p)
      sum[p] += k_tile_squares(v[p]);
  }
#pragma unroll
  for (int p = 0; p < kParts; ++p)
    if (lane == 0) shares[warp + p * kPrepareWarps] = sum[p];
  __syncthreads();
  return inverse_rms(in, shares[lane % kShares]);
}

// Two neighbouring 16-bit values.
template <typename Element>
__device__ float2 pair_of(uint32_t word) {
  if constexpr (std::is_same_v<Element, __half>) {
    return halves(word);
  } else {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  }
}

// Columns `column`.. of row t of 16-bit values, which InputView::x points to.
template <typename Element>
__device__ void load_16bit(const InputView& in, int64_t t, int column, float (&v)[kLaneColumns]) {
  const auto* row = reinterpret_cast<const uint16_t*>(in.x) + t * in.ldx;
  uint32_t words[kLaneColumns / 2] = {};
  if (in.vectors) {
    if (column < in.width) {
      const uint4 four = *reinterpret_cast<const uint4*>(row + column);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
  } else {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      if (column + e < in.width)
        words[e / 2] |= static_cast<uint32_t>(row[column + e]) << (e % 2 * 16);
  }
#pragma unroll
  for (int e = 0; e < kLaneColumns; e += 2) {
    const float2 pair = pair_of<Element>(words[e / 2]);
    v[e] = pair.x, v[e + 1] = pair.y;
  }
}

// Grid: x over the k-tiles, y over the inputs, z over the forms.
template <int Span, typename Element>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    prepare_kernel(const InputView in, const Forms forms) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const FormView form = blockIdx.z == 0 ? forms.form[0] : forms.form[1];
  const int64_t t = blockIdx.y;
  const int first = (static_cast<int>(blockIdx.x) * kPrepareWarps + warp) * Span;
  const auto column_of = [&](int u) { return (first + u) * kKTileColumns + lane * kLaneColumns; };
  allow_next_kernel();
  // What does not come from the kernel before is made ready before waiting for it.
  float gain[Span][kLaneColumns];
  uint32_t signs[Span];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if (in.gain) load8(in.gain, column_of(u), in, gain[u]);
    signs[u] = sign_bits(form, column_of(u));
  }
  wait_previous_kernel();
  float v[Span][kLaneColumns];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if constexpr (std::is_same_v<Element, float>) {
      load_input(in, t, column_of(u), v[u]);
    } else {
      load_16bit<Element>(in, t, column_of(u), v[u]);
    }
  }
  const float inverse = in.gain ? row_inverse_rms(in, t, warp, lane) : 0.0f;
  if (first * kKTileColumns >= form.cols) return;
  int size[Span];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if (in.gain) apply_norm(gain[u], inverse, v[u]);
    const bool whole = (first + u + 1) * kKTileColumns <= form.full;
    size[u] = !form.block ? 0 : whole ? form.block : segment_size(form, column_of(u));
    if (form.block) rotate_k_tile(size[u], whole, signs[u], lane, v[u]);
  }
  rotate_span<Span>(size, v);
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if ((first + u) * kKTileColumns >= form.cols) break;
    if (form.rows) {
      store_rows(form, t, column_of(u), v[u]);
    } else {
      store_planes(form, t, first + u, lane, v[u]);
    }
  }
}

using Kernel = void (*)(const InputView, const Forms);

template <typename Element>
Kernel kernel_for(int span) {
  return span == 1 ? prepare_kernel<1, Element> : prepare_kernel<4, Element>;
}

void launch_prepare(const InputSource& source, const InputView& in, DType type,
                    std::span<const InputForm> forms, int64_t m, Stream stream) {
  if (forms.size() > kMaxForms) {
    throw Error(ErrorCode::internal, "GPU input", std::to_string(forms.size()) + " forms at once");
  }
  Forms views;
  int block = 0, cols = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    views.form[i] = form_view(source, forms[i], m);
    block = std::max(block, views.form[i].block);
    cols = std::max(cols, views.form[i].cols);
  }
  const int span = block > kKTileColumns ? 4 : 1;
  const int per_block = kPrepareWarps * span * kKTileColumns;
  const LaunchShape shape{dim3(static_cast<unsigned>((cols + per_block - 1) / per_block),
                               static_cast<unsigned>(m), static_cast<unsigned>(forms.size())),
                          dim3(kPrepareWarps * 32)};
  const Kernel kernel = type == DType::f32   ? kernel_for<float>(span)
                        : type == DType::f16 ? kernel_for<__half>(span)
                                             : kernel_for<__nv_bfloat16>(span);
  launch("input preparation", kernel, shape, stream, in, views);
}

}  // namespace

void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m,
             Stream stream) {
  if (m == 0 || forms.empty()) return;
  launch_prepare(source, input_view(source), DType::f32, forms, m, stream);
}

void prepare(const ForeignRows& source, std::span<const InputForm> forms, int64_t m,
             Stream stream) {
  if (m == 0 || forms.empty()) return;
  InputSource rows;  // of which 16-bit kernels take the address alone
  rows.x = static_cast<const float*>(source.data);
  rows.ldx = source.stride;
  rows.width = source.width;
  InputView in = input_view(rows);
  if (source.type != DType::f32) in.vectors &= source.stride % kLaneColumns == 0;
  launch_prepare(rows, in, source.type, forms, m, stream);
}

}  // namespace walsh::cuda
