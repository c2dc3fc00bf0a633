// Arguments of the prefill kernels over a coded cache, which have one translation unit per head
// size.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/args.h"

namespace walsh::cuda::detail {

struct CodedPrefillArgs : RowArgs {
  CodedView cache;
  FreshRows stored, exact;
  int position = 0;  // of row 0
};

void launch_coded_prefill_64(const CodedPrefillArgs& args, Stream stream);
void launch_coded_prefill_128(const CodedPrefillArgs& args, Stream stream);
void launch_coded_prefill_256(const CodedPrefillArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
