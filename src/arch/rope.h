// Rotary position embedding: its parameters and its frequencies, as in transformers'
// modeling_rope_utils.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace walsh {

class ConfigReader;

enum class RopeKind : uint8_t { standard, linear, llama3, longrope, yarn, dynamic };

struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;           // linear, llama3, yarn, dynamic
  double low_freq_factor = 1;  // llama3 and below
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;                      // of the training; all but linear
  std::vector<float> short_factor = {}, long_factor = {};  // longrope: divisors of frequencies
  double attention_factor = 1;                             // of cosines and sines
  double share = 1;  // of the values of a head that are rotated: the first ones
  int64_t dim = 0;   // their number; 0: that share
  // yarn: frequencies that turn more than beta_fast times in the training's positions stay, those
  // that turn less than beta_slow times are divided; `truncate` rounds the bounds to whole pairs.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  // Queries at position p are multiplied by 1 + query_beta log(1 + floor(p / original positions)).
  double query_beta = 0;
  // yarn: the square of the magnitude that `mscale_all_dim` gives, which raises the logits of
  // attention where a family's code does that; 1 without the key.
  double logit_factor = 1;

  bool operator==(const RopeConfig&) const = default;
};

// What a family has where config.json does not say it.
struct RopeDefaults {
  double theta = 10000, share = 1;
  // Layers with a window have a rope of their own, without scaling where the config does not give
  // one set of parameters per kind of layer.
  bool per_kind = false;
  double local_theta = 0;     // of those layers; 0: as the others
  bool query_growth = false;  // llama_4_scaling_beta is understood
  // JSON object of parameters that a config without any means.
  std::string_view parameters = {};
};

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before): one set for
// all layers; or two, that of layers which see all positions, then that of layers with a window.
// Throws bad_input naming the key for a kind that is not supported.
std::vector<RopeConfig> read_ropes(ConfigReader& reader, const RopeDefaults& defaults);

// Values of a head that are rotated.
int64_t rotated_values(const RopeConfig& rope, int64_t head_dim);

// The angles of one kind of rope: value i of the first `2 * frequencies.size()` ones of a head and
// value i + frequencies.size() are a pair that turns by position * frequencies[i]; both are
// multiplied by `magnitude`.
struct RopeTable {
  std::vector<float> frequencies;
  float magnitude = 1;
};

// For contexts of up to `positions` positions: longrope and dynamic have other frequencies where
// they exceed the positions that the model was first trained with.
RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions);
bool depends_on_context(const RopeConfig& rope);

// The factor of queries at a position.
float query_scale(const RopeConfig& rope, int64_t position);

}  // namespace walsh
