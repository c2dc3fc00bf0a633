// Reads the parameters of rotary position embedding and makes its frequencies, as transformers'
// modeling_rope_utils does.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace walsh {

class ConfigReader;

// `proportional` turns the first `share` of a whole head's pairs; the others stand still.
enum class RopeKind : uint8_t { standard, linear, llama3, longrope, yarn, dynamic, proportional };

struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;           // All kinds use it, except standard and longrope.
  double low_freq_factor = 1;  // Only llama3 uses these.
  double high_freq_factor = 4;
  // The training had this many positions; all kinds use it, except linear.
  int64_t original_max_positions = 0;
  std::vector<float> short_factor = {}, long_factor = {};  // longrope divides frequencies by these.
  double attention_factor = 1;                             // It multiplies cosines and sines.
  // This share of a head's values is turned, from the first one on.
  double share = 1;
  int64_t dim = 0;  // This many values of a head are turned; 0: `share` says it.
  // yarn keeps frequencies with more than beta_fast turns in the training context and divides those
  // with fewer than beta_slow turns. `truncate` rounds the bounds to whole pairs.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  // Queries at position p are multiplied by 1 + query_beta log(1 + floor(p / original positions)).
  double query_beta = 0;
  // Some families' code multiplies attention logits by the square of the magnitude of yarn's
  // `mscale_all_dim`. This is that square; 1 without the key.
  double logit_factor = 1;
  // HunYuan multiplies the base by alpha^(d / (d - 2)), where d is the number of turned values.
  double alpha = 1;
  // The pairs of three axes alternate: pair 3 i + 1 turns by rows (axis 1) for i < sections[1],
  // pair 3 i + 2 by columns (axis 2) for i < sections[2], and all others by time (axis 0). A text
  // has the same position on all axes. Zeros: there is one axis.
  std::array<int64_t, 3> sections = {};

  bool operator==(const RopeConfig&) const = default;
};

// Holds a family's defaults for what config.json does not state, and which kinds it supports.
struct RopeDefaults {
  double theta = 10000, share = 1;
  // If true, layers with a window have their own rope, without scaling unless the config has
  // separate parameters per kind of layer.
  bool per_kind = false;
  double local_theta = 0;     // Layers with a window use it; 0: they use that of the others.
  bool query_growth = false;  // If true, llama_4_scaling_beta is supported.
  // Is a JSON object with the default parameters for configs without any.
  std::string_view parameters = {};
  bool proportional = false;  // If true, RopeKind::proportional is supported.
  bool alpha = false;         // If true, RopeConfig::alpha is.
  // If these are not 0, the rope has three axes, and RopeConfig::sections is supported.
  std::array<int64_t, 3> sections = {};
};

// Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (earlier): Returns
// one rope for all layers, or two, for layers with full attention and for layers with a window.
// Throws bad_input naming the key for an unsupported kind.
std::vector<RopeConfig> read_ropes(ConfigReader& reader, const RopeDefaults& defaults);

// Returns how many values of a head are turned.
int64_t rotated_values(const RopeConfig& rope, int64_t head_dim);

// Holds the angles of one rope. With n = frequencies.size(), values i and n + i of a head (i < n)
// are a pair that is turned by position * frequencies[i]; both are multiplied by `magnitude`.
struct RopeTable {
  std::vector<float> frequencies;
  float magnitude = 1;
  std::vector<uint8_t> axes = {};  // It has the axis of each pair; empty: there is one axis.
};

// Makes the table for contexts of up to `positions`. longrope and dynamic use other frequencies
// beyond the training context.
RopeTable rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions);
bool depends_on_context(const RopeConfig& rope);

// Returns the factor of queries at a position (RopeConfig::query_beta).
float query_scale(const RopeConfig& rope, int64_t position);

}  // namespace walsh
