#include "kernels/emulated/device.h"
//
#include "kernels/cuda/delta/delta_rows.cu"
