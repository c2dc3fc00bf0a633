// Emulates what products of warp groups need around them: products end at once.
#pragma once

#include <cstdint>
#include <map>

#include "kernels/emulated/device.h"

namespace walsh::cuda::detail {

template <typename T>
void pin(T&) {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int Pending>
void wgmma_wait() {}
template <int Registers>
void give_registers() {}
template <int Registers>
void take_registers() {}

// Lets 128 threads meet.
inline void sync_group(int name) {
  struct Group {
    int arrived = 0;
    unsigned number = 0;
  };
  static thread_local std::map<int, Group> groups;
  static thread_local unsigned block = 0;
  if (block != emulated::block().number()) groups.clear();
  block = emulated::block().number();
  Group& group = groups[name];
  const unsigned number = group.number;
  if (++group.arrived == 128) group.arrived = 0, ++group.number;
  while (group.number == number)
    emulated::block().ask();
}

inline int count_arrival(int* counter) {
  return (*counter)++;
}

inline uint64_t swizzled_operand(uint32_t address) {
  return address / 16;
}

}  // namespace walsh::cuda::detail
