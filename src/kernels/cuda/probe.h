// Measures the current GPU's limits, with which kernels are compared.
#pragma once

namespace walsh::cuda {

// Returns the bytes per second that a kernel reads from a buffer far larger than L2; the best of
// several passes. Throws limit if the buffer cannot be allocated.
double measure_read_bandwidth();

// Returns the multiply-adds per second of a large bf16 product by cuBLASLt; 0 if that is missing.
double measure_bf16_peak();

}  // namespace walsh::cuda
