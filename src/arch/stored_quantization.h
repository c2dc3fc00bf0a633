// Reads `quantization_config` of checkpoints that store tensors as small floats with scales.
#pragma once

#include <cstdint>

namespace walsh {

class ConfigReader;

struct StoredQuantization {
  enum class Kind : uint8_t {
    none,
    // X is stored as F8_E4M3, with X_scale_inv: a factor per block or one for the tensor.
    fp8,
    // X is stored as X_blocks, two 4-bit floats per byte, with X_scales: a power of two per 32
    // columns.
    mxfp4
  };
  Kind kind = Kind::none;
  // fp8 has blocks of this shape; 0: one factor for the tensor.
  int64_t block_rows = 0, block_cols = 0;

  bool operator==(const StoredQuantization&) const = default;
};

// Reads the config of a checkpoint. Throws bad_input for other kinds of quantization.
StoredQuantization read_stored_quantization(ConfigReader& reader);

}  // namespace walsh
