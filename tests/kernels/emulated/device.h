// Runs kernels on the host, for tests without a GPU: the threads of a block are fibers of one
// thread, which switch where the kernel waits or communicates with other lanes. Blocks run one
// after the other or, if they wait for each other, in separate threads (launch.h). Sources of
// kernels are compiled unchanged, in a namespace of their own.
#pragma once

#include <ucontext.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/emulated/vector_types.h"

#define cuda cuda_emulated
#define __global__
#define __device__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__ static thread_local
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
// These are the state of the running thread.
inline thread_local dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), blockDim, gridDim;

namespace emulated {

// Holds how many threads wait for each other.
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
        shared_(shared / sizeof(Line) + 1) {
    std::memset(shared_.data(), 0xa5, shared_bytes());  // memory that was never written
  }

  static Block*& current() {
    static thread_local Block* block = nullptr;
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
        Fiber& fiber = fibers_[running_];
        if (fiber.done) continue;
        any = true;
        if (fiber.meeting != nullptr && fiber.meeting->number == fiber.number) continue;
        threadIdx.x = static_cast<unsigned>(running_);
        swapcontext(&scheduler_, &fiber.context);
      }
      if (asked_) std::this_thread::yield();
      asked_ = false;
    }
  }

  // These are the state of the blocks that this thread has run.
  unsigned number() const { return number_; }
  void* shared() { return shared_.data(); }
  size_t shared_bytes() const { return shared_.size() * sizeof(Line); }
  size_t running() const { return running_; }
  // The thread has asked for what another block writes.
  void ask() {
    asked_ = true;
    change();
  }
  void sync_block() { wait(block_); }
  void sync_warp() { wait(warps_[running_ / 32]); }
  // Lets `threads` threads meet.
  void meet(int meeting, int threads) {
    some_[meeting].present = threads;
    wait(some_[meeting]);
  }
  void announce(int meeting, int threads) {
    some_[meeting].present = threads;
    ++some_[meeting].arrived;
    some_[meeting].complete();
  }

  // Returns the value of lane `lane(own)` of the warp, or the own value if there is no such lane.
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

  // Returns the values of the warp's 32 lanes.
  template <typename T>
  void from_all(const T& own, T (&all)[32]) {
    const size_t first = running_ / 32 * 32;
    put(own);
    sync_warp();
    for (size_t i = 0; i < 32; ++i)
      all[i] = get<T>(first + i);
    sync_warp();
  }

  // Joins the warp's values.
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
    static_assert(sizeof(T) <= sizeof(Line));
    std::memcpy(&values_[running_], &value, sizeof value);
  }
  template <typename T>
  T get(size_t thread) const {
    T value;
    std::memcpy(&value, &values_[thread], sizeof value);
    return value;
  }

  struct alignas(128) Line {
    std::byte bytes[128];
  };
  static constexpr size_t kStack = 64 << 10;
  struct Fiber {
    ucontext_t context;
    bool done = false;
    const Meeting* meeting = nullptr;  // it waits for this one
    unsigned number = 0;               // until its number is another one
  };

  // Returns the stack of fiber i of any block, allocated once.
  static char* stack(size_t i) {
    static thread_local std::vector<std::unique_ptr<char[]>> stacks;
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
    Fiber& own = fibers_[running_];
    own.number = meeting.number;
    ++meeting.arrived;
    meeting.complete();
    own.meeting = &meeting;
    while (meeting.number == own.number)
      change();
    own.meeting = nullptr;
  }

  // Lets the other threads go on.
  void change() {
    const size_t own = running_;
    swapcontext(&fibers_[own].context, &scheduler_);
  }

  static unsigned next_number() {
    static thread_local unsigned last = 0;
    return ++last;
  }

  const unsigned number_ = next_number();
  std::function<void()> kernel_;
  std::vector<Fiber> fibers_;
  std::vector<Meeting> warps_;
  Meeting block_;
  Meeting some_[2];
  std::vector<Line> values_;
  std::vector<Line> shared_;
  size_t running_ = 0;
  bool asked_ = false;
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
inline bool __any_sync(unsigned mask, bool flag) {
  return __ballot_sync(mask, flag) != 0;
}
template <typename T>
T __reduce_add_sync(unsigned, T value) {
  return emulated::block().over_warp(value, T{}, [](T a, T b, int) { return a + b; });
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
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(uint64_t{static_cast<unsigned>(high)} << 32 |
                               static_cast<unsigned>(low));
}
inline int64_t __double_as_longlong(double x) {
  return std::bit_cast<int64_t>(x);
}
inline double __longlong_as_double(int64_t x) {
  return std::bit_cast<double>(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline unsigned __float2uint_rn(float x) {
  return static_cast<unsigned>(std::nearbyint(x));
}
inline float rsqrtf(float x) {
  return 1 / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1 / std::sqrt(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8)
    c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
void __stcg(T* p, const T& value) {
  *p = value;
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
template <typename T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
T atomicAdd(T* p, T value) {
  return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);
}
template <typename T>
T atomicOr(T* p, T value) {
  return __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
