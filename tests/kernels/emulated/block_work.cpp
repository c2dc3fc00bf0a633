#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/block_work.cpp"
