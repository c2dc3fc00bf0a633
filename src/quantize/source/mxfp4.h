// MXFP4 (OCP Microscaling Formats 1.0), as GPT-OSS stores its experts: blocks of 32 values in 4
// bits each, sign, two bits of exponent and one of mantissa, with one power of two per block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

inline constexpr int64_t kMxfp4Block = 32, kMxfp4BlockBytes = 16;
constexpr int64_t mxfp4_blocks(int64_t cols) {
  return (cols + kMxfp4Block - 1) / kMxfp4Block;
}

// `cols` values, a multiple of 32, as bf16, which holds all of them exactly (the least ones as
// subnormals): codes[cols / 2], the low half of a byte first, scales[cols / 32] with bias 127, of
// which 255 is not a number.
void decode_mxfp4(const std::byte* codes, const std::byte* scales, int64_t cols, uint16_t* out);

}  // namespace walsh
