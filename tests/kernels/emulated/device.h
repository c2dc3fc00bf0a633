// Kernels on the host, for tests where there is no GPU: the threads of a block are fibers of one
// thread, which change places where the kernel waits or asks other lanes. Sources of kernels are
// compiled as they are, in a namespace of their own.
#pragma once

#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#define cuda cuda_emulated
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__ static  // blocks run one after the other
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}

// Of the running thread.
inline dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim, gridDim;

namespace emulated {

// Threads that wait for each other.
struct Meeting {
  int present = 0, arrived = 0;
  unsigned number = 0;

  void complete() {
    if (arrived == 0 || arrived != present) return;
    arrived = 0;
    ++number;
  }
};

class Block {
 public:
  Block(int threads, size_t shared, std::function<void()> kernel)
      : kernel_(std::move(kernel)),
        fibers_(static_cast<size_t>(threads)),
        warps_(static_cast<size_t>((threads + 31) / 32)),
        values_(static_cast<size_t>(threads)),
        shared_(shared / sizeof(std::max_align_t) + 1) {}

  static Block*& current() {
    static Block* block = nullptr;
    return block;
  }

  void run() {
    current() = this;
    block_.present = static_cast<int>(fibers_.size());
    for (size_t i = 0; i < fibers_.size(); ++i) {
      ++warps_[i / 32].present;
      Fiber& fiber = fibers_[i];
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = stack(i);
      fiber.context.uc_stack.ss_size = kStack;
      fiber.context.uc_link = &scheduler_;
      makecontext(&fiber.context, &Block::enter, 0);
    }
    for (bool any = true; any;) {
      any = false;
      for (running_ = 0; running_ < fibers_.size(); ++running_) {
        if (fibers_[running_].done) continue;
        any = true;
        threadIdx.x = static_cast<unsigned>(running_);
        swapcontext(&scheduler_, &fibers_[running_].context);
      }
    }
  }

  void* shared() { return shared_.data(); }
  void sync_block() { wait(block_); }
  void sync_warp() { wait(warps_[running_ / 32]); }

  // What lane `lane(own)` of the warp gave; its own value if there is no such lane.
  template <typename T, typename Lane>
  T from_lane(T value, const Lane& lane) {
    const size_t own = running_ % 32, first = running_ - own;
    put(value);
    sync_warp();
    const size_t other = static_cast<size_t>(lane(static_cast<int>(own)));
    const bool there = other < 32 && first + other < values_.size();
    const T result = get<T>(there ? first + other : running_);
    sync_warp();
    return result;
  }

  // Over the warp's values.
  template <typename T, typename Join>
  T over_warp(T value, T start, const Join& join) {
    const size_t first = running_ / 32 * 32;
    put(value);
    sync_warp();
    T all = start;
    for (size_t i = first; i < first + 32 && i < values_.size(); ++i)
      all = join(all, get<T>(i), static_cast<int>(i - first));
    sync_warp();
    return all;
  }

 private:
  template <typename T>
  void put(const T& value) {
    static_assert(sizeof(T) <= sizeof(double));
    std::memcpy(&values_[running_], &value, sizeof value);
  }
  template <typename T>
  T get(size_t thread) const {
    T value;
    std::memcpy(&value, &values_[thread], sizeof value);
    return value;
  }

  static constexpr size_t kStack = 64 << 10;
  struct Fiber {
    ucontext_t context;
    bool done = false;
  };

  // Of fiber i of any block: they are made once.
  static char* stack(size_t i) {
    static std::vector<std::unique_ptr<char[]>> stacks;
    while (stacks.size() <= i)
      stacks.push_back(std::make_unique_for_overwrite<char[]>(kStack));
    return stacks[i].get();
  }

  static void enter() {
    Block& block = *current();
    block.kernel_();
    const size_t own = block.running_;
    block.fibers_[own].done = true;
    for (Meeting* meeting : {&block.block_, &block.warps_[own / 32]}) {
      --meeting->present;
      meeting->complete();
    }
  }

  void wait(Meeting& meeting) {
    const unsigned number = meeting.number;
    ++meeting.arrived;
    meeting.complete();
    while (meeting.number == number) {
      const size_t own = running_;
      swapcontext(&fibers_[own].context, &scheduler_);
    }
  }

  std::function<void()> kernel_;
  std::vector<Fiber> fibers_;
  std::vector<Meeting> warps_;
  Meeting block_;
  std::vector<double> values_;
  std::vector<std::max_align_t> shared_;
  size_t running_ = 0;
  ucontext_t scheduler_{};
};

inline Block& block() {
  return *Block::current();
}

}  // namespace emulated

#define WALSH_DYNAMIC_SHARED(type, name) auto* name = static_cast<type*>(emulated::block().shared())

inline void __syncthreads() {
  emulated::block().sync_block();
}
inline void __syncwarp() {
  emulated::block().sync_warp();
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::block().from_lane(value, [&](int lane) { return lane ^ mask; });
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int distance) {
  return emulated::block().from_lane(
      value, [&](int lane) { return lane < distance ? lane : lane - distance; });
}
template <typename T>
T __shfl_sync(unsigned, T value, int from) {
  return emulated::block().from_lane(value, [&](int) { return from; });
}
inline unsigned __ballot_sync(unsigned, bool flag) {
  return emulated::block().over_warp<unsigned>(
      flag, 0u, [](unsigned all, unsigned one, int lane) { return all | one << lane; });
}
inline int __reduce_add_sync(unsigned, int value) {
  return emulated::block().over_warp(value, 0, [](int a, int b, int) { return a + b; });
}
inline int __reduce_min_sync(unsigned, int value) {
  return emulated::block().over_warp(value, INT32_MAX,
                                     [](int a, int b, int) { return b < a ? b : a; });
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return emulated::block().over_warp(value, 0u,
                                     [](unsigned a, unsigned b, int) { return a < b ? b : a; });
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int min(int a, int b) {
  return b < a ? b : a;
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
