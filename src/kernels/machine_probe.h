// Measures the machine's limits, with which kernels are compared.
#pragma once

#include "base/thread_pool.h"

namespace walsh {

// Returns the bytes per second that all threads of the pool together read from a buffer larger than
// 512 MB; the best of several passes. Throws limit if the buffer cannot be allocated.
double measure_read_bandwidth(ThreadPool& pool);

// Returns the int8 multiply-adds per second of all threads together, in registers, with the unit
// that the int8 matmul of the current instruction set (base/cpu.h) multiplies many vectors with.
double measure_int8_peak(ThreadPool& pool);

}  // namespace walsh
