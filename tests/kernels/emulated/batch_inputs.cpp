#include "kernels/emulated/device.h"
//
#include "kernels/cuda/gemm/batch_prepare.cu"
