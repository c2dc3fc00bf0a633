// Rotary position embedding: its parameters and its frequencies, as in transformers'
// modeling_rope_utils.
#pragma once

#include <cstdint>
#include <vector>

namespace walsh {

class ConfigReader;

enum class RopeKind : uint8_t { standard, linear, llama3, longrope };

struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;           // linear, llama3
  double low_freq_factor = 1;  // llama3 and below
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;                      // llama3, longrope
  std::vector<float> short_factor = {}, long_factor = {};  // longrope: divisors of frequencies
  double attention_factor = 1;                             // longrope: of cosines and sines
  double share = 1;  // of the values of a head that are rotated: the first ones

  bool operator==(const RopeConfig&) const = default;
};

// Reads `rope_parameters` (transformers 5; one set for all layers) or `rope_theta` and
// `rope_scaling` (before). Throws bad_input naming the key for a kind that is not supported.
RopeConfig read_rope(ConfigReader& reader);

// The angles of one kind of rope: value i of the first `2 * frequencies.size()` ones of a head and
// value i + frequencies.size() are a pair that turns by position * frequencies[i]; both are
// multiplied by `magnitude`.
struct RopeTable {
  std::vector<float> frequencies;
  float magnitude = 1;
};

// For contexts of up to `positions` positions: longrope has other frequencies where they exceed the
// positions that the model was first trained with.
RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions);

}  // namespace walsh
