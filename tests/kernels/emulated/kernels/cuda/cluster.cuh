// Emulates how blocks of a cluster read each other's shared memory (emulated/device.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/async.cuh"
#include "kernels/emulated/cluster.h"

namespace walsh::cuda {

inline void cluster_sync() {
  cluster_wait();
}

template <typename T>
T read_of_block(uint32_t address) {
  return emulated::Cluster::own().read<T>(address);
}

}  // namespace walsh::cuda
