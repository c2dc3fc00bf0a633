#include "kernels/cuda/rows/gated_heads.h"

#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/prepare_row.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kGateWarps = 4;
constexpr int kNormThreads = 256;
constexpr int kTakeThreads = 256;

struct Forms {
  FormView form[kMaxForms];
};

// Returns the norm's factor for a head, which multiplies it besides the gate.
__device__ __forceinline__ float head_factor(double squares, const HeadGates& gates) {
  return static_cast<float>(1.0 / sqrt(squares / gates.dim + static_cast<double>(gates.eps)));
}

__device__ __forceinline__ float sigmoid_of(float x, float gate) {
  return x / (1.0f + expf(-gate));
}

// Gates one head of a row with a warp.
__global__ void __launch_bounds__(kGateWarps * 32)
    gate_kernel(float* rows, const __grid_constant__ HeadGates gates, int heads) {
  allow_next_kernel();
  wait_previous_kernel();
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int head = static_cast<int>(blockIdx.x) * kGateWarps + static_cast<int>(threadIdx.x / 32);
  if (head >= heads) return;
  const int64_t t = blockIdx.y;
  float* x = rows + (t * heads + head) * gates.dim;
  const float* gate = gates.gate + t * gates.ld + head * gates.head_ld;
  if (gates.gain == nullptr) {
    for (int i = lane; i < gates.dim; i += 32)
      x[i] = sigmoid_of(x[i], gate[i]);
    return;
  }
  double sum = 0;
  for (int i = lane; i < gates.dim; i += 32)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const float inverse = head_factor(sum, gates);
  for (int i = lane; i < gates.dim; i += 32)
    x[i] = sigmoid_of(gate[i], gate[i]) * (x[i] * inverse * gates.gain[i]);
}

// Gates one head of a row with a block, then norms it.
__global__ void __launch_bounds__(kNormThreads)
    gate_first_kernel(float* rows, const __grid_constant__ HeadGates gates, int heads) {
  __shared__ double parts[kNormThreads / 32];
  allow_next_kernel();
  wait_previous_kernel();
  const int head = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.y;
  float* x = rows + (t * heads + head) * gates.dim;
  const float* gate = gates.gate + t * gates.ld + head * gates.head_ld;
  const float* gain = gates.gain + int64_t{head} * gates.dim;
  double sum = 0;
  for (int i = thread; i < gates.dim; i += kNormThreads) {
    const float gated = sigmoid_of(gate[i], gate[i]) * x[i];
    x[i] = gated;  // Only this thread reads it.
    sum += static_cast<double>(gated) * static_cast<double>(gated);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  if (thread % 32 == 0) parts[thread / 32] = sum;
  __syncthreads();
  double total = 0;
#pragma unroll
  for (const double part : parts)
    total += part;
  const float inverse = head_factor(total, gates);
  for (int i = thread; i < gates.dim; i += kNormThreads)
    x[i] = x[i] * inverse * gain[i];
}

// Loads the gates of 8 values of a row from `column` on, which all belong to one head.
__device__ __forceinline__ void load_gate(const InputView& in, const float* from, bool inside,
                                          bool vectors, float (&v)[kLaneColumns]) {
  if (vectors) {
    load8_whole(from, inside ? 0 : in.width, in, v);
  } else {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = inside ? from[e] : 0.0f;
  }
}

// Loads a lane's values of row t and applies their gates. Whole warps call it.
__device__ __forceinline__ void load_gated(const InputView& in, const HeadGates& gates,
                                           bool vectors, int64_t t, int column,
                                           float (&v)[kLaneColumns]) {
  load8(in.x + t * in.ldx, column, in, v);
  const bool inside = column < in.width;
  const int head = column / gates.dim, place = column - head * gates.dim;
  float gate[kLaneColumns];
  load_gate(in, gates.gate + t * gates.ld + head * gates.head_ld + place, inside, vectors, gate);
  if (gates.gain == nullptr) {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      v[e] = sigmoid_of(v[e], gate[e]);
    return;
  }
  double sum = 0;
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e)
    sum += static_cast<double>(v[e]) * static_cast<double>(v[e]);
#pragma unroll 1
  for (int distance = gates.dim / kLaneColumns / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(~0u, sum, distance);
  const float inverse = head_factor(sum, gates);
#pragma unroll
  for (int e = 0; e < kLaneColumns; ++e) {
    const float gain = inside ? gates.gain[place + e] : 0.0f;
    v[e] = sigmoid_of(gate[e], gate[e]) * (v[e] * inverse * gain);
  }
}

// Makes inputs from gated heads. The grid spans k-tiles in x, inputs in y, and forms in z.
template <int Span>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    prepare_gated_kernel(const InputView in, const __grid_constant__ HeadGates gates, bool vectors,
                         const Forms forms) {
  const FormView form = blockIdx.z == 0 ? forms.form[0] : forms.form[1];
  const int64_t t = blockIdx.y;
  allow_next_kernel();
  prepare_row<Span>(
      in, form, t, static_cast<int>(blockIdx.x),
      [&](int column, float(&v)[kLaneColumns]) { load_gated(in, gates, vectors, t, column, v); });
}

__global__ void __launch_bounds__(kTakeThreads)
    take_kernel(const float* from, int64_t count, int dim, float* q) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t i = int64_t{blockIdx.x} * kTakeThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t head = i / dim;
  q[i] = from[2 * head * dim + (i - head * dim)];
}

}  // namespace

void gate_heads(float* x, const HeadGates& gates, int64_t m, int heads, Stream stream) {
  if (m == 0) return;
  if (gates.first) {
    return launch(
        "gates before norms", gate_first_kernel,
        {dim3(static_cast<unsigned>(heads), static_cast<unsigned>(m)), dim3(kNormThreads)}, stream,
        x, gates, heads);
  }
  launch(
      "gated heads", gate_kernel,
      {dim3(static_cast<unsigned>((heads + kGateWarps - 1) / kGateWarps), static_cast<unsigned>(m)),
       dim3(kGateWarps * 32)},
      stream, x, gates, heads);
}

bool can_prepare(const HeadGates& gates) {
  return !gates.first && gates.dim >= kLaneColumns && kKTileColumns % gates.dim == 0;
}

void prepare(const InputSource& source, const HeadGates& gates, std::span<const InputForm> forms,
             int64_t m, Stream stream) {
  if (m == 0 || forms.empty()) return;
  if (!can_prepare(gates) || source.up != nullptr || source.gain != nullptr ||
      source.width % gates.dim != 0 || forms.size() > kMaxForms) {
    throw Error(ErrorCode::internal, "GPU gates",
                std::to_string(forms.size()) + " forms of " + std::to_string(source.width) +
                    " values in heads of " + std::to_string(gates.dim));
  }
  Forms views;
  for (size_t i = 0; i < forms.size(); ++i)
    views.form[i] = form_view(source, forms[i], m);
  const bool vectors = gates.ld % 4 == 0 && gates.head_ld % 4 == 0 && is_aligned(gates.gate);
  const PrepareShape blocks = prepare_shape({views.form, forms.size()});
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks.blocks), static_cast<unsigned>(m),
                               static_cast<unsigned>(forms.size())),
                          dim3(kPrepareWarps * 32)};
  launch("gated input preparation",
         blocks.span == 1 ? prepare_gated_kernel<1> : prepare_gated_kernel<4>, shape, stream,
         input_view(source), gates, vectors, views);
}

void take_queries(const float* from, int64_t m, int heads, int dim, float* q, Stream stream) {
  const int64_t count = m * heads * dim;
  if (count == 0) return;
  launch(
      "queries beside gates", take_kernel,
      {dim3(static_cast<unsigned>((count + kTakeThreads - 1) / kTakeThreads)), dim3(kTakeThreads)},
      stream, from, count, dim, q);
}

}  // namespace walsh::cuda
