// Computes the unnormalized Walsh-Hadamard transform, with one implementation per instruction set.
#pragma once

#include <cstdint>

namespace walsh::detail {

// Computes x[n] <- H x with the Sylvester-Hadamard matrix H (H[i][j] = (-1)^popcount(i & j)), where
// n is a power of two from 32 to 1024. Every instruction set adds in the order of the butterfly.
using HadamardFunction = void (*)(float* x, int n);

void hadamard_ref(float* x, int n);
void hadamard_avx2(float* x, int n);
void hadamard_avx512(float* x, int n);

// Returns the implementation for current_isa().
HadamardFunction hadamard_function();

}  // namespace walsh::detail
