// What this machine can do at most, to compare the kernels with: measured, not looked up.
#pragma once

#include "base/thread_pool.h"

namespace walsh {

// Bytes per second that all threads of the pool read together from memory, out of a buffer larger
// than 512 MB; the best of several passes. Throws limit if the buffer cannot be had.
double measure_read_bandwidth(ThreadPool& pool);

// int8 multiply-adds per second of all threads together, in registers, with the instructions that
// the int8 matmul of the best supported instruction set uses.
double measure_int8_peak(ThreadPool& pool);

}  // namespace walsh
