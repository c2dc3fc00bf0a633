// Emulates launches, which run one after the other, asynchronous copies, which happen alternately
// when they are issued or when they are waited for, since a kernel must be right either way, and
// tensor core products of the fragments of all lanes.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "base/half.h"
#include "kernels/emulated/cluster.h"
#include "kernels/emulated/device.h"

namespace walsh::cuda {

inline void allow_next_kernel() {}
inline void wait_previous_kernel() {}

inline uint32_t shared_address(const void* p) {
  return emulated::Window::own().address_of(p);
}

template <typename T>
T shared_value(uint32_t address) {
  T value;
  std::memcpy(&value, emulated::Window::own().at(address), sizeof value);
  return value;
}
inline uint4 shared_words(uint32_t address) {
  return shared_value<uint4>(address);
}
inline float4 shared_float4(uint32_t address) {
  return shared_value<float4>(address);
}
inline float2 shared_float2(uint32_t address) {
  return shared_value<float2>(address);
}
inline uint32_t shared_word(uint32_t address) {
  return shared_value<uint32_t>(address);
}

inline float2 halves(uint32_t word) {
  return {f16_to_f32(static_cast<uint16_t>(word)), f16_to_f32(static_cast<uint16_t>(word >> 16))};
}

inline void prefetch(const void*) {}

// Holds a thread's delayed copies by groups, the open group last.
struct LateCopies {
  struct Copy {
    uint32_t to;
    const void* from;
  };
  std::deque<std::vector<Copy>> groups{{}};
  int asked = 0;

  static LateCopies& own() {
    static thread_local std::vector<LateCopies> of_threads;
    static thread_local unsigned block = 0;
    if (block != emulated::block().number()) of_threads.assign(1024, {});
    block = emulated::block().number();
    return of_threads[emulated::block().running()];
  }
  static void make(const Copy& copy) {
    std::memcpy(emulated::Window::own().at(copy.to), copy.from, 16);
  }
};

inline void copy_async(uint32_t shared, const void* global) {
  LateCopies& copies = LateCopies::own();
  const LateCopies::Copy copy{shared, global};
  if (++copies.asked % 3 == 0) {
    LateCopies::make(copy);
  } else {
    copies.groups.back().push_back(copy);
  }
}
inline void copy_commit() {
  LateCopies::own().groups.emplace_back();
}
template <int Pending>
void copy_wait() {
  LateCopies& copies = LateCopies::own();
  while (copies.groups.size() > size_t{Pending} + 1) {
    for (const LateCopies::Copy& copy : copies.groups.front())
      LateCopies::make(copy);
    copies.groups.pop_front();
  }
}

inline int cluster_rank() {
  return emulated::Cluster::rank();
}
inline void cluster_arrive_relaxed() {}
inline void cluster_wait() {
  __syncthreads();
  if (threadIdx.x == 0) emulated::Cluster::own().meet();
  __syncthreads();
}
inline uint32_t cluster_address(uint32_t address, int rank) {
  return emulated::Cluster::remote(address, rank);
}

// Multiplies the fragments of mma.m16n8k32: lane 4 g + t has rows g and g + 8 and columns 4 t.., 16
// + 4 t.. of a, as rows of b those, column g; of the result columns 2 t and 2 t + 1.
inline void mma_int8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                     const int (&c)[4]) {
  struct Lane {
    uint32_t a[4], b[2];
  };
  Lane all[32];
  emulated::block().from_all(Lane{{a[0], a[1], a[2], a[3]}, {b0, b1}}, all);
  const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned half = i / 2, column = 2 * t + i % 2;
    int sum = c[i];
    for (unsigned k = 0; k < 32; ++k) {
      const unsigned of = k % 16 / 4, shift = 8 * (k % 4);
      const uint32_t left = all[4 * g + of].a[half + 2 * (k / 16)];
      const uint32_t right = all[4 * column + of].b[k / 16];
      sum += static_cast<int8_t>(left >> shift) * static_cast<int8_t>(right >> shift);
    }
    d[i] = sum;
  }
}

}  // namespace walsh::cuda
