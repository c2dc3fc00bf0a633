// Reads what config.json says in `quantization_config` of checkpoints that others have quantized.
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
    fp8,         // X as F8_E4M3 with X_scale_inv: one factor per block or per tensor
    mxfp4,       // X as X_blocks, two 4-bit floats per byte, with X_scales: powers of two
    compressed,  // what llm-compressor writes: integers and small floats
    gptq,        // integers of 2, 3, 4 or 8 bits with scales and zero points per group of inputs
    awq,         // integers of 4 bits with scales and zero points per group of inputs
    bnb          // bitsandbytes: 4-bit floats by a table, or int8 with a scale per row
  };
  Kind kind = Kind::none;
  int64_t block_rows = 0, block_cols = 0;  // of fp8 and compressed; 0: one factor
  std::vector<int> widths = {};            // bits of integers that the config names
  std::vector<int64_t> groups = {};        // columns that share a scale; -1: all of a row
  bool zeros_less_one = false;             // of gptq: zero points are stored minus one
};

// Returns the method of the kinds that the description of a model has.
StoredMethod method_of(const StoredQuantization& stored);
// Returns the method of the other kinds, as a config.json tells it. Throws bad_input naming `where`
// and the key for options that are not supported.
StoredMethod read_stored_method(std::string_view config_json, const std::string& where);

}  // namespace walsh
