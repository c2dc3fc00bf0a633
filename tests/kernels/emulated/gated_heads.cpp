#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rows/gated_heads.cu"
