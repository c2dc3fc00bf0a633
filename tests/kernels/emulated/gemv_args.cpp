#include "kernels/emulated/device.h"
//
#include "kernels/cuda/gemv/gemv_args.cpp"
