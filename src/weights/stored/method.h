// Reads the `quantization_config` in config.json of checkpoints that others have quantized.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "arch/stored_quantization.h"

namespace walsh {

struct StoredMethod {
  enum class Kind : uint8_t {
    none,
    fp8,  // X is F8_E4M3, X_scale_inv has one factor per block or per tensor
    // X_blocks has two 4-bit floats of X per byte, X_scales has powers of two.
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
};

// Returns the method of the kinds that the description of a model has.
StoredMethod method_of(const StoredQuantization& stored);
// Returns the method of the other kinds, as a config.json tells it. Throws bad_input naming `where`
// and the key for options that are not supported.
StoredMethod read_stored_method(std::string_view config_json, const std::string& where);

}  // namespace walsh
