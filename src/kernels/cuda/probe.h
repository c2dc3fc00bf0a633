// Measures the current GPU's limits, with which kernels are compared.
#pragma once

namespace walsh::cuda {

// Returns how many bytes per second a kernel reads from a buffer far larger than L2, in the best of
// several passes. Throws limit if the buffer cannot be allocated.
double measure_read_bandwidth();

// Returns how many multiply-adds per second a large bf16 product by cuBLASLt takes; 0 if the
// library is missing.
double measure_bf16_peak();

}  // namespace walsh::cuda
