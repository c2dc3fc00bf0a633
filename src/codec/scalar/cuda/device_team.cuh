// Implements teams and blocks (group_search.h, find_scales.h) on the device, where a team is half a
// warp.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/cuda/device.h"
#include "codec/scalar/cuda/encode_launch.h"
#include "codec/scalar/cuda/encode_span.h"

namespace walsh::cuda::encoding {

struct DeviceTeam {
  using Float = float;
  static constexpr unsigned kWarp = 0xffffffffu;

  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x) % kLanes; }
  static __device__ __forceinline__ float lane() { return static_cast<float>(index()); }
  static __device__ __forceinline__ bool leads() { return index() == 0; }
  static __device__ __forceinline__ void sync() { __syncwarp(); }

  static __device__ __forceinline__ float load(const float* p) { return p[index()]; }
  template <class T>
  static __device__ __forceinline__ void store(T* p, float v) {
    p[index()] = static_cast<T>(v);
  }
  static __device__ __forceinline__ float broadcast(float v) { return v; }
  static __device__ __forceinline__ float select(bool which, float a, float b) {
    return which ? a : b;
  }
  template <class F>
  static __device__ __forceinline__ float map(float v, F f) {
    return f(v);
  }

  static __device__ __forceinline__ float sum(float v) {
    WALSH_UNROLL
    for (int width = kLanes / 2; width > 0; width /= 2)
      v += __shfl_xor_sync(kWarp, v, width);
    return v;
  }
  // Computes the sums of a and b at once: after the first step the upper half of the team continues
  // with b.
  static __device__ __forceinline__ void sum_two(float a, float b, float& sum_a, float& sum_b) {
    const bool upper = index() >= kLanes / 2;
    float v = (upper ? b : a) + __shfl_xor_sync(kWarp, upper ? a : b, kLanes / 2);
    WALSH_UNROLL
    for (int width = kLanes / 4; width > 0; width /= 2)
      v += __shfl_xor_sync(kWarp, v, width);
    const float other = __shfl_xor_sync(kWarp, v, kLanes / 2);
    sum_a = upper ? other : v;
    sum_b = upper ? v : other;
  }
  static __device__ __forceinline__ float max(float v) {
    WALSH_UNROLL
    for (int width = kLanes / 2; width > 0; width /= 2)
      v = fmaxf(v, __shfl_xor_sync(kWarp, v, width));
    return v;
  }
  // These combine both teams of the warp, which call them together.
  static __device__ __forceinline__ bool any(bool v) { return __any_sync(kWarp, v) != 0; }
  static __device__ __forceinline__ bool all(bool v) { return __all_sync(kWarp, v) != 0; }

  // Replaces the values of lanes l and l ^ 8 by their sum and difference.
  static __device__ __forceinline__ float butterfly8(float v) {
    const float other = __shfl_xor_sync(kWarp, v, 8);
    return index() >= 8 ? other - v : other + v;
  }

  static __device__ __forceinline__ float from_half(uint16_t h) {
    return __half2float(__ushort_as_half(h));
  }
  static __device__ __forceinline__ uint16_t to_half(float v) {
    return __half_as_ushort(__float2half_rn(v));
  }
  static __device__ __forceinline__ float from_bfloat(uint16_t h) {
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
  }
  static __device__ __forceinline__ uint16_t to_bfloat(float v) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  }
};

struct DeviceBlock {
  using Team = DeviceTeam;

  static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int threads() { return static_cast<int>(blockDim.x); }
  static __device__ __forceinline__ int team_index() { return thread() / kLanes; }
  static __device__ __forceinline__ int teams() { return threads() / kLanes; }
  static __device__ __forceinline__ int warp() { return thread() / 32; }
  static __device__ __forceinline__ int warps() { return threads() / 32; }
  static __device__ __forceinline__ bool leads_warp() { return thread() % 32 == 0; }
  static __device__ __forceinline__ Team team() { return {}; }
  static __device__ __forceinline__ void sync() { __syncthreads(); }

  // Sets *out to the sum of v over the threads of the block.
  static __device__ __forceinline__ void add_up(double v, double* out) {
    __shared__ double parts[4];
    WALSH_UNROLL
    for (int width = 16; width > 0; width /= 2)
      v += __shfl_xor_sync(0xffffffffu, v, width);
    if (leads_warp()) parts[warp()] = v;
    __syncthreads();
    if (thread() == 0) {
      for (int w = 1; w < warps(); ++w)
        v += parts[w];
      *out = v;
    }
    __syncthreads();
  }

  static __device__ __forceinline__ void keep_least(uint64_t* p, uint64_t v) {
    atomicMin(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v));
  }
};

template <GroupKind kKind, int kThresholds>
__global__ void __launch_bounds__(threads_of(kKind))
    encode_kernel(const __grid_constant__ PassArgs args) {
  extern __shared__ __align__(16) unsigned char memory[];
  encode_span<DeviceBlock, kKind, kThresholds>(DeviceBlock{}, args, blockIdx.x,
                                               reinterpret_cast<std::byte*>(memory));
}

template <GroupKind kKind, int kThresholds>
void launch(const PassArgs& args, int64_t rows, Stream stream) {
  const auto blocks = static_cast<unsigned>(rows * args.spans);
  const size_t shared = span_layout(kKind, args.span).bytes;
  const auto kernel = encode_kernel<kKind, kThresholds>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "encoder");
  kernel<<<blocks, threads_of(kKind), shared, stream>>>(args);
  check_launch("encoder");
}

template <GroupKind kKind>
void launch_kind(int thresholds, const PassArgs& args, int64_t rows, Stream stream) {
  if constexpr (kKind == GroupKind::absmax) {
    launch<kKind, 1>(args, rows, stream);
  } else if constexpr (kKind == GroupKind::sub_groups) {
    launch<kKind, 3>(args, rows, stream);
  } else if (thresholds == 1) {
    launch<kKind, 1>(args, rows, stream);
  } else if constexpr (kKind == GroupKind::offset) {
    launch<kKind, 3>(args, rows, stream);  // The interleaved formats have 3 bits.
  } else if (thresholds == 3) {
    launch<kKind, 3>(args, rows, stream);
  } else {
    launch<kKind, 7>(args, rows, stream);
  }
}

}  // namespace walsh::cuda::encoding
