#include "kernels/emulated/device.h"
//
#include "kernels/cuda/rows/latent_rows.cu"
