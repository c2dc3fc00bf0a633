// What the prompt kernels over a coded cache are told, one translation unit per head size.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/prefill.h"

namespace walsh::cuda::detail {

struct CodedPromptArgs {
  PromptArgs prompt;  // without keys, values and pages
  CodedView cache;
  FreshRows stored, exact;
  int position = 0;  // of row 0
};

void launch_coded_prompt_64(const CodedPromptArgs& args, Stream stream);
void launch_coded_prompt_128(const CodedPromptArgs& args, Stream stream);
void launch_coded_prompt_256(const CodedPromptArgs& args, Stream stream);

}  // namespace walsh::cuda::detail
