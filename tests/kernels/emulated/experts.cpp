#include "kernels/emulated/device.h"
//
#include "kernels/cuda/experts/experts.cu"
