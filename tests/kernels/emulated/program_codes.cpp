#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/program_codes.cpp"
