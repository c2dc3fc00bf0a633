#include "kernels/emulated/device.h"
//
#include "kernels/cuda/attention/latent_prompt.cu"
