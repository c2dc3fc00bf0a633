// The row that a launch of a program computes.
#pragma once

#include "kernels/cuda/persistent/phase.h"

namespace walsh::cuda {

__shared__ ProgramRow program_row;
__shared__ int32_t program_sequence;  // only in programs with other mixers

}  // namespace walsh::cuda
