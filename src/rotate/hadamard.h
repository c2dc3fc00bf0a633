// The unnormalized Walsh-Hadamard transform, one implementation per instruction set.
#pragma once

#include <cstdint>

namespace walsh::detail {

// x[n] <- H x with H the Sylvester-Hadamard matrix (H[i][j] = (-1)^popcount(i & j)); n is a power
// of two, 32..1024. Additions happen in the order of the butterfly on every instruction set.
using HadamardFunction = void (*)(float* x, int n);

void hadamard_ref(float* x, int n);
void hadamard_avx2(float* x, int n);
void hadamard_avx512(float* x, int n);

// Returns the implementation for current_isa().
HadamardFunction hadamard_function();

}  // namespace walsh::detail
