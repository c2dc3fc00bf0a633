// Emulates barriers in shared memory and bulk copies, which happen at once (emulated/device.h).
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "kernels/cuda/async.cuh"
#include "kernels/emulated/cluster.h"
#include "kernels/emulated/device.h"

namespace walsh::cuda {

struct EmulatedBarrier {
  int count = 0, missing = 0;
  int64_t bytes = 0;
  int parity = 0;  // of the phase at work

  void complete() {
    if (missing != 0 || bytes != 0) return;
    missing = count;
    parity ^= 1;
  }
  // Returns those of the running block.
  static EmulatedBarrier& at(uint32_t address) {
    static thread_local std::map<uint32_t, EmulatedBarrier> all;
    static thread_local unsigned block = 0;
    if (block != emulated::block().number()) all.clear();
    block = emulated::block().number();
    return all[address];
  }
};

inline void start_barrier(uint32_t barrier, int count) {
  EmulatedBarrier& of = EmulatedBarrier::at(barrier);
  of.count = of.missing = count;
}
inline void show_barriers() {}
inline void arrive_expecting(uint32_t barrier, int bytes) {
  EmulatedBarrier& of = EmulatedBarrier::at(barrier);
  if (of.missing-- == 0) std::abort();  // more arrivals than the phase has
  of.bytes += bytes;
  of.complete();
}
inline void arrive_barrier(uint32_t barrier) {
  arrive_expecting(barrier, 0);
}
inline void arrive_when_copied(uint32_t barrier) {
  copy_commit();
  copy_wait<0>();
  arrive_barrier(barrier);
}
inline void wait_barrier(uint32_t barrier, int parity) {
  for (int64_t asked = 0; EmulatedBarrier::at(barrier).parity == parity; ++asked) {
    if (asked == 1000000) {
      std::fputs("a barrier is never completed\n", stderr);
      std::abort();
    }
    emulated::block().ask();
  }
}
inline void copy_bulk(uint32_t shared, const void* global, int bytes, uint32_t barrier) {
  if (bytes % 16 != 0 || shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0)
    std::abort();
  emulated::Window::own().at(shared + static_cast<uint32_t>(bytes) - 16);  // inside of the memory
  std::memcpy(emulated::Window::own().at(shared), global, static_cast<size_t>(bytes));
  EmulatedBarrier& of = EmulatedBarrier::at(barrier);
  of.bytes -= bytes;
  of.complete();
}

}  // namespace walsh::cuda
