#include "kernels/emulated/device.h"
//
#include "kernels/cuda/attention/attention.cpp"
//
#include "kernels/cuda/attention/decode.cu"
#include "kernels/cuda/attention/decode_latent.cu"
//
#include "kernels/cuda/attention/prefill.cpp"
//
#include "kernels/cuda/attention/prefill_128.cu"
#include "kernels/cuda/attention/prefill_192.cu"
#include "kernels/cuda/attention/prefill_256.cu"
#include "kernels/cuda/attention/prefill_512.cu"
#include "kernels/cuda/attention/prefill_64.cu"
#include "kernels/cuda/attention/prefill_96.cu"
#include "kernels/cuda/attention/prefill_wgmma.cu"
