// Inputs of products: one warp per 256 columns (1,024 where the Hadamard block is larger), every
// block sums the squares of the whole row for itself.
#include <algorithm>
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/form_view.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/row_transform.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct Forms {
  FormView form[kMaxForms];
};

// Stages of distance 256 and 512 between the units of a span.
template <int Span>
__device__ void rotate_span(const int (&size)[Span], float (&v)[Span][kLaneColumns]) {
#pragma unroll
  for (int h = 1; h < Span; h *= 2) {
#pragma unroll
    for (int u = 0; u < Span; ++u) {
      if ((u & h) != 0 || size[u] <= h * kUnitColumns) continue;
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e)
        butterfly(v[u][e], v[u | h][e]);
    }
  }
}

constexpr int kPrepareWarps = 8;

// 1 / rms of input t for all threads of the block.
__device__ float row_inverse_rms(const InputView& in, int64_t t, int warp, int lane) {
  __shared__ double shares[kShares];
  for (int share = warp; share < kShares; share += kPrepareWarps) {
    double sum = 0;
#pragma unroll 2
    for (int unit = share; unit * kUnitColumns < in.width; unit += kShares) {
      float v[kLaneColumns];
      load_input<false>(in, t, unit * kUnitColumns + lane * kLaneColumns, v);
      sum += unit_squares(v);
    }
    if (lane == 0) shares[share] = sum;
  }
  __syncthreads();
  return inverse_rms(in, shares[lane % kShares]);
}

// Grid: x over the units, y over the inputs, z over the forms.
template <int Span>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    prepare_kernel(const InputView in, const Forms forms) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const FormView form = blockIdx.z == 0 ? forms.form[0] : forms.form[1];
  const int64_t t = blockIdx.y;
  allow_next_kernel();
  wait_previous_kernel();
  const float inverse = in.gain ? row_inverse_rms(in, t, warp, lane) : 0.0f;

  const int first = (static_cast<int>(blockIdx.x) * kPrepareWarps + warp) * Span;
  if (first * kUnitColumns >= form.cols) return;
  float v[Span][kLaneColumns];
  int size[Span];
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    const int column = (first + u) * kUnitColumns + lane * kLaneColumns;
    load_input<false>(in, t, column, v[u]);
    if (in.gain) {
      float gain[kLaneColumns];
      load8<false>(in.gain, column, in, gain);
      apply_norm(gain, inverse, v[u]);
    }
    const bool whole = (first + u + 1) * kUnitColumns <= form.full;
    size[u] = !form.block ? 0 : whole ? form.block : segment_size(form, column);
    if (form.block) rotate_unit(size[u], whole, sign_bits(form, column), lane, v[u]);
  }
  rotate_span<Span>(size, v);
#pragma unroll
  for (int u = 0; u < Span; ++u) {
    if ((first + u) * kUnitColumns >= form.cols) break;
    if (form.rows) {
      store_rows(form, t, (first + u) * kUnitColumns + lane * kLaneColumns, v[u]);
    } else {
      store_planes(form, t, first + u, lane, v[u]);
    }
  }
}

}  // namespace

void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m,
             Stream stream) {
  if (m == 0 || forms.empty()) return;
  if (forms.size() > kMaxForms) {
    throw Error(ErrorCode::internal, "GPU input", std::to_string(forms.size()) + " forms at once");
  }
  const InputView in = input_view(source);
  Forms views;
  int block = 0, cols = 0;
  for (size_t i = 0; i < forms.size(); ++i) {
    views.form[i] = form_view(source, forms[i], m);
    block = std::max(block, views.form[i].block);
    cols = std::max(cols, views.form[i].cols);
  }
  const int span = block > kUnitColumns ? 4 : 1;
  const int per_block = kPrepareWarps * span * kUnitColumns;
  const LaunchShape shape{dim3(static_cast<unsigned>((cols + per_block - 1) / per_block),
                               static_cast<unsigned>(m), static_cast<unsigned>(forms.size())),
                          dim3(kPrepareWarps * 32)};
  launch("input preparation", span == 1 ? prepare_kernel<1> : prepare_kernel<4>, shape, stream, in,
         views);
}

}  // namespace walsh::cuda
