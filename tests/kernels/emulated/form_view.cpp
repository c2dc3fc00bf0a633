#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rows/form_view.cpp"
