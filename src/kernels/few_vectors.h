// Declares parts of the int8 matmul of scalar and product codes, which matmul_i8 calls for few
// vectors. They are separate units because decoders take long to compile.
#pragma once

#include "kernels/isa_tables.h"

namespace walsh {

namespace avx512 {
// Takes one plane of activations, and scales of whole units of columns.
detail::MatmulI8 matmul_few;
detail::MatmulI8 matmul_few_planes;  // It takes two planes.
detail::MatmulI8 matmul_half_units;  // It takes scalar codes with scales of half a unit.
}  // namespace avx512

namespace avx512vbmi {
// Takes one plane of activations, and scales of whole units of columns.
detail::MatmulI8 matmul_few;
detail::MatmulI8 matmul_few_planes;  // It takes two planes.
detail::MatmulI8 matmul_half_units;  // It takes scalar codes with scales of half a unit.
}  // namespace avx512vbmi

}  // namespace walsh
