#include "kernels/emulated/device.h"
//
#include "kernels/cuda/delta/convolve.cu"
