#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/phase_order.cpp"
