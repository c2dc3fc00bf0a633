// Reads `quantization_config` of checkpoints that store tensors as small floats with scales.
#pragma once

#include <cstdint>

namespace walsh {

class ConfigReader;

struct StoredQuantization {
  enum class Kind : uint8_t {
    none,
    fp8,   // X as F8_E4M3 with X_scale_inv: one factor per block or per tensor
    mxfp4  // X as X_blocks, two 4-bit floats per byte, with X_scales: a power of two per 32 columns
  };
  Kind kind = Kind::none;
  int64_t block_rows = 0, block_cols = 0;  // of fp8; 0: one factor

  bool operator==(const StoredQuantization&) const = default;
};

// Reads the config of a checkpoint. Throws bad_input for other kinds of quantization.
StoredQuantization read_stored_quantization(ConfigReader& reader);

}  // namespace walsh
