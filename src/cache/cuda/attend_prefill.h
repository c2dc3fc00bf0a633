// Declares the prefill kernels over a coded cache, and their arguments.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

struct CodedPrefillArgs : RowArgs {
  CodedView cache;
  FreshRows stored, exact;
  int position = 0;  // Row 0 has this position.
};

// Launches the kernel for heads of Dim values (cmake/cuda_kernels.cmake: 64, 128, 256).
template <int Dim>
void launch_coded_prefill(const CodedPrefillArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
