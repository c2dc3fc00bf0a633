// What the current GPU can do at most, to compare the kernels with: measured, not looked up.
#pragma once

namespace walsh::cuda {

// Bytes per second that a kernel reads from memory, out of a buffer far larger than the L2; the
// best of several passes. Throws limit if the buffer cannot be had.
double measure_read_bandwidth();

// Multiply-adds per second of a large bf16 matrix product by cuBLASLt; 0 where that is missing.
double measure_bf16_peak();

}  // namespace walsh::cuda
