// Turns blocks of GGUF files into codes that the kernels multiply with, so that a file is used at
// about the size that it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/format.h"

namespace walsh {

// Says what the blocks of a GGUF file become.
enum class GgufCodes : uint8_t {
  keep,       // they become codes of 2 to 6 or 8 bits
  symmetric,  // they become codes of 4 or 8 bits without offsets, which GPU kernels take
  drop        // they are dequantized
};

// Returns the format that blocks of a ggml type become, or null for types without blocks. A row of
// this table also says what they become as `symmetric`, where that differs.
//   Q4_0, Q8_0                 q4_0 and q8_0, with the codes of the file
//   IQ4_NL, IQ4_XS, MXFP4      4 bits with the levels of the type
//   Q5_0                       5 bits; symmetric: q8_0 with the codes of the file
//   Q4_1, Q4_K, Q5_1, Q5_K     4 and 5 bits with an offset per 32 weights; symmetric: q8_0
//   Q2_K, Q3_K, Q6_K           2, 3 and 6 bits with a scale per 16 weights; symmetric: q8_0
//   all others                 q8_0, nearest levels
// Factors that a type has twice (of 256 and of 32 weights) are multiplied and rounded to fp16.
const Format* gguf_code_format(uint32_t type, GgufCodes codes);

// Reads one row of blocks: codes as the format packs them, a scale (and an offset, if the format
// has any) per group of weights. `values` is room for the row as float32. Returns false if a scale
// or an offset is beyond the range of fp16 or not finite.
bool read_gguf_codes(uint32_t type, std::span<const std::byte> row, const Format& format,
                     std::span<float> values, std::byte* codes, uint16_t* scales,
                     uint16_t* offsets);

}  // namespace walsh
