// Encodes scalar codes (docs/formats/README.md), with the search for scales. The bits do not depend
// on the instruction set or the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/encode/options.h"
#include "codec/format.h"

namespace walsh {

// Points to the arrays of one pass, laid out as in PassArrays. Arrays that are not used are null.
struct PassOutput {
  std::byte* codes = nullptr;
  uint16_t* scales = nullptr;
  uint16_t* offsets = nullptr;
  uint16_t* sub_scales = nullptr;
};

// Encodes rows x[rows][padded], which are finite and already rotated; `out` points to the first
// row's output. Scales saturate at the largest finite fp16. A group of zeros gets scale 0 and
// decodes to zeros.
void encode_rows(const ScalarCode& code, const EncodeOptions& options, const float* x, int64_t rows,
                 int64_t padded, const PassOutput& out);

}  // namespace walsh
