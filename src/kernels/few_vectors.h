// These are parts of the int8 matmul of scalar and product codes, which matmul_i8 calls for few
// vectors. They are compiled by themselves, because decoders take long to compile.
#pragma once

#include "kernels/isa_tables.h"

namespace walsh {

namespace avx512 {
detail::MatmulI8 matmul_few;         // one plane of activations, scales of whole units of columns
detail::MatmulI8 matmul_few_planes;  // two planes
detail::MatmulI8 matmul_half_units;  // scalar codes with scales of half a unit
}  // namespace avx512

namespace avx512vbmi {
detail::MatmulI8 matmul_few;         // one plane of activations, scales of whole units of columns
detail::MatmulI8 matmul_few_planes;  // two planes
detail::MatmulI8 matmul_half_units;  // scalar codes with scales of half a unit
}  // namespace avx512vbmi

}  // namespace walsh
