// Reads the parameters of rotary position embedding and makes its frequencies, as transformers'
// modeling_rope_utils does.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace walsh {

class ConfigReader;

// With `proportional`, the first `share` of a whole head's pairs turn, the others stand still.
enum class RopeKind : uint8_t { standard, linear, llama3, longrope, yarn, dynamic, proportional };

struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;           // all kinds except standard and longrope
  double low_freq_factor = 1;  // llama3 and below
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;  // training context; all kinds except linear
  std::vector<float> short_factor = {}, long_factor = {};  // longrope: divisors of frequencies
  double attention_factor = 1;                             // multiplies cosines and sines
  double share = 1;  // share of a head's values that is rotated, from the first on
  int64_t dim = 0;   // number of rotated values; 0: given by share
  // With yarn, frequencies with more than beta_fast turns in the training context are kept, those
  // with fewer than beta_slow turns are divided; `truncate` rounds the bounds to whole pairs.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  // Queries at position p are multiplied by 1 + query_beta log(1 + floor(p / original positions)).
  double query_beta = 0;
  // With yarn, this is the square of the magnitude of `mscale_all_dim`, by which some families'
  // code multiplies attention logits; 1 without the key.
  double logit_factor = 1;
  // HunYuan multiplies the base by this to the power of d / (d - 2), where d is the number of
  // rotated values.
  double alpha = 1;

  bool operator==(const RopeConfig&) const = default;
};

// A family has these defaults for what config.json does not state.
struct RopeDefaults {
  double theta = 10000, share = 1;
  // Layers with a window have their own rope, without scaling unless the config has separate
  // parameters per kind of layer.
  bool per_kind = false;
  double local_theta = 0;     // of layers with a window; 0: as in the others
  bool query_growth = false;  // whether llama_4_scaling_beta is supported
  // These default parameters, a JSON object, are for configs without any.
  std::string_view parameters = {};
  bool proportional = false;  // whether RopeKind::proportional is supported
  bool alpha = false;         // whether RopeConfig::alpha is
};

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (earlier): one set
// for all layers, or two, for layers with full attention and for layers with a window. Throws
// bad_input naming the key for an unsupported kind.
std::vector<RopeConfig> read_ropes(ConfigReader& reader, const RopeDefaults& defaults);

// Returns the number of rotated values of a head.
int64_t rotated_values(const RopeConfig& rope, int64_t head_dim);

// Holds the angles of one rope. With n = frequencies.size(), values i and n + i of a head (i < n)
// are a pair that is rotated by position * frequencies[i]; both are multiplied by `magnitude`.
struct RopeTable {
  std::vector<float> frequencies;
  float magnitude = 1;
};

// Makes the table for contexts of up to `positions`: longrope and dynamic use other frequencies
// beyond the training context.
RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions);
bool depends_on_context(const RopeConfig& rope);

// Returns the factor of queries at a position.
float query_scale(const RopeConfig& rope, int64_t position);

}  // namespace walsh
