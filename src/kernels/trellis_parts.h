// Declares parts of the int8 matmul of trellis codes, which matmul_trellis calls. They are separate
// units because decoders take long to compile.
#pragma once

#include "kernels/isa_tables.h"

namespace walsh {

namespace avx2 {
detail::MatmulI8 matmul_quantiles;
}

namespace avx512 {
detail::MatmulI8 matmul_quantiles;     // It takes up to 6 bits a step.
detail::MatmulI8 matmul_wide_trellis;  // It takes 7 and 8 bits a step.
}  // namespace avx512

namespace avx512vbmi {
detail::MatmulI8 matmul_quantiles;     // It takes up to 6 bits a step.
detail::MatmulI8 matmul_wide_trellis;  // It takes 7 and 8 bits a step.
}  // namespace avx512vbmi

}  // namespace walsh
