// `quantization_config` of a checkpoint whose tensors are small floats with scales beside them.
#pragma once

#include <cstdint>

namespace walsh {

class ConfigReader;

struct StoredQuantization {
  enum class Kind : uint8_t {
    none,
    fp8,   // X as F8_E4M3 with X_scale_inv: factors of blocks, or one of the whole tensor
    mxfp4  // X as X_blocks, two 4-bit floats in a byte, with X_scales: powers of two of 32 columns
  };
  Kind kind = Kind::none;
  int64_t block_rows = 0, block_cols = 0;  // fp8; 0: there is one factor

  bool operator==(const StoredQuantization&) const = default;
};

// Throws bad_input for what is not one of these.
StoredQuantization read_stored_quantization(ConfigReader& reader);

}  // namespace walsh
