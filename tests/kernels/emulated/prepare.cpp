#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rows/prepare.cu"
