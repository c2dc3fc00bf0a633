// Encodes scalar codes (docs/formats/README.md), with the search for scales. The bits do not depend
// on the instruction set or the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/encode/options.h"
#include "codec/format.h"

namespace walsh {

// The arrays of one pass go here, laid out as in PassArrays; unused ones are null.
struct PassOutput {
  std::byte* codes = nullptr;
  uint16_t* scales = nullptr;
  uint16_t* offsets = nullptr;
  uint16_t* sub_scales = nullptr;
};

// Encodes rows x[rows][padded], finite and already rotated, into `out` (its first row). Scales
// saturate at the largest finite fp16; a group of zeros gets scale 0 and decodes to zeros.
void encode_rows(const ScalarCode& code, const EncodeOptions& options, const float* x, int64_t rows,
                 int64_t padded, const PassOutput& out);

}  // namespace walsh
