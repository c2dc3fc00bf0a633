#include "kernels/emulated/device.h"
//
#include "kernels/cuda/attention/attention.cpp"
//
#include "kernels/cuda/attention/decode.cu"
#include "kernels/cuda/attention/decode_latent.cu"
//
#include "kernels/cuda/attention/prefill.cpp"
//
#include "kernels/cuda/attention/prefill.cuh"
#include "kernels/cuda/attention/prefill_wgmma.cu"
