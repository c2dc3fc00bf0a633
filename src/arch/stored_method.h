// Reads the `quantization_config` in config.json of checkpoints that others have quantized.
#pragma once

#include <cstdint>
#include <vector>

namespace walsh {

class ConfigReader;

struct StoredMethod {
  enum class Kind : uint8_t {
    none,
    fp8,  // X is F8_E4M3, X_scale_inv has one factor per block or per tensor
    // X_blocks has two 4-bit floats of X per byte, X_scales has a power of two per 32 columns.
    mxfp4,
    compressed,  // llm-compressor writes integers and small floats
    // Integers of 2, 3, 4 or 8 bits have scales and zero points per group of inputs.
    gptq,
    awq,  // integers of 4 bits have scales and zero points per group of inputs
    bnb   // bitsandbytes: 4-bit floats by a table, or int8 with a scale per row
  };
  Kind kind = Kind::none;
  int64_t block_rows = 0, block_cols = 0;  // fp8 and compressed have them; 0 means one factor
  std::vector<int> widths = {};            // the config names these bits of integers
  std::vector<int64_t> groups = {};        // this many columns share a scale; -1 means all of a row
  bool zeros_less_one = false;             // gptq may store zero points minus one

  bool operator==(const StoredMethod&) const = default;
};

// Reads the config of a checkpoint. Throws bad_input for methods and options that are not
// supported.
StoredMethod read_stored_method(ConfigReader& reader);

}  // namespace walsh
