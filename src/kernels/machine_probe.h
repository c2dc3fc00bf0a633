// Measures the machine's limits, with which kernels are compared.
#pragma once

#include "base/thread_pool.h"

namespace walsh {

// Returns how many bytes per second all threads of the pool together read from a buffer larger than
// 512 MB, in the best of several passes. Throws limit if the buffer cannot be allocated.
double measure_read_bandwidth(ThreadPool& pool);

// Returns how many int8 multiply-adds per second all threads together compute in registers, with
// the unit with which the int8 matmul of the current instruction set (base/cpu.h) multiplies many
// vectors.
double measure_int8_peak(ThreadPool& pool);

}  // namespace walsh
