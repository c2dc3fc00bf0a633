#include "kernels/emulated/device.h"
//
#include "kernels/cuda/attention/attention.cpp"
//
#include "kernels/cuda/attention/decode.cu"
