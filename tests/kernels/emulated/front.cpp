#include "kernels/emulated/device.h"
//
#include "kernels/cuda/experts/front.cu"
