// Runs the int8 matmul of src/kernels/amx with a matrix unit in software, so that machines without
// one test all but its four instructions. It is for machines that have avx512vbmi.
#pragma once

#include "kernels/ops.h"

namespace walsh::test {

// Does what Ops::matmul_i8 does, for scalar and product codes and for trellis codes of one product
// per step. Returns the number of products of two tiles.
int64_t matmul_i8_by_emulated_tiles(const PanelMatmul& call);

}  // namespace walsh::test
