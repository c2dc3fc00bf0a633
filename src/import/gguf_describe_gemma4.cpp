// Writes the entries of config.json for Gemma 4. Its layers with a window and those without one
// differ in the length and number of their heads, and late layers may have wider MLPs.
#include <fmt/format.h>

#include <algorithm>

#include "import/gguf_describe.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kPattern = ".attention.sliding_window_pattern";
constexpr const char* kWidths = ".feed_forward_length";
constexpr const char* kFactors = "rope_freqs.weight";
// Layers without a window rotate the first values of a head only: the factors of the others make
// their frequencies vanish.
constexpr double kRotated = 1, kLeastOfOthers = 1e9;

double rotated_share(const GgufMetadata& m, const Json& rope) {
  const auto factors = rope.find("long_factor");
  if (factors == rope.end())
    throw Error(ErrorCode::bad_input, m.path() + ": tensor " + kFactors, "no such vector");
  const auto turns = [](const Json& factor) { return factor.get<double>() == kRotated; };
  const auto first = std::find_if_not(factors->begin(), factors->end(), turns);
  const bool others = std::all_of(first, factors->end(), [](const Json& factor) {
    return factor.get<double>() >= kLeastOfOthers;
  });
  if (!others || factors->empty()) {
    throw Error(ErrorCode::bad_input, m.path() + ": tensor " + kFactors,
                "expected factors of 1 and after them factors that stop the rotation");
  }
  return static_cast<double>(first - factors->begin()) / static_cast<double>(factors->size());
}

void describe_ropes(const GgufMetadata& m, Json& config) {
  constexpr double kLocalTheta = 10000;
  Json& rope = config.at("rope_parameters");
  const double share = rotated_share(m, rope);
  const int64_t local = m.require(".attention.key_length_swa");
  const int64_t rotated = m.integer(".rope.dimension_count_swa").value_or(local);
  if (local <= 0 || rotated <= 0 || rotated > local)
    m.refuse(".rope.dimension_count_swa", "exceeds the heads");
  rope = {{"full_attention",
           {{"rope_type", "proportional"},
            {"partial_rotary_factor", share},
            {"rope_theta", rope.at("rope_theta")}}},
          {"sliding_attention",
           {{"rope_type", "default"},
            {"partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(local)},
            {"rope_theta", m.number(".rope.freq_base_swa", 1).value_or(kLocalTheta)}}}};
}

// Describes the heads: config.json has those of layers with a window, and the others by layer.
void describe_heads(const GgufMetadata& m, const std::vector<bool>& windows, Json& config) {
  const int64_t wide = m.require(".attention.key_length");
  const int64_t narrow = m.require(".attention.key_length_swa");
  if (m.integer(".attention.value_length_swa").value_or(narrow) != narrow)
    m.refuse(".attention.value_length_swa",
             "differs from the keys' length, which is not supported");
  const auto heads = m.layer_integers(".attention.head_count_kv");
  Json others = Json::object();
  for (size_t i = 0; i < windows.size(); ++i) {
    const int64_t dim = windows[i] ? narrow : wide;
    if (dim == narrow && heads[i] == heads[0]) continue;
    others[std::to_string(i)] = {{"head_dim", dim}, {"num_key_value_heads", heads[i]}};
  }
  config["head_dim"] = narrow;
  config["num_key_value_heads"] = heads[0];
  config["per_layer_config"] = std::move(others);
}

// Describes the last layers. They may attend to keys and values that earlier ones have stored, and
// their MLPs may be twice as wide.
void describe_shared_caches(const GgufMetadata& m, Json& config) {
  const int64_t layers = m.layers();
  const int64_t shared = m.integer(".attention.shared_kv_layers").value_or(0);
  if (shared < 0 || shared >= layers)
    m.refuse(".attention.shared_kv_layers", fmt::format("is {} of {} layers", shared, layers));
  const auto widths = m.layer_integers(kWidths);
  const auto first_shared = widths.begin() + (layers - shared);
  const int64_t last = widths.back();
  const auto are = [](auto from, auto to, int64_t width) {
    return std::all_of(from, to, [&](int64_t other) { return other == width; });
  };
  const bool doubled = shared > 0 && last % 2 == 0 && last / 2 == widths[0];
  if (!are(widths.begin(), first_shared, widths[0]) || !are(first_shared, widths.end(), last) ||
      (!doubled && last != widths[0])) {
    m.refuse(kWidths, "expected one width, or twice that for the layers that share a cache");
  }
  config["intermediate_size"] = widths[0];
  config["num_kv_shared_layers"] = shared;
  config["use_double_wide_mlp"] = doubled;
}

}  // namespace

void describe_gguf_gemma4(const GgufMetadata& m, Json& config) {
  const auto windows = m.booleans(kPattern, m.layers());
  if (!windows) m.refuse(kPattern, "is missing, expected a boolean for each layer");
  describe_gguf_gemma(m, config);
  config["sliding_window"] = m.require(".attention.sliding_window");
  config["layer_types"] = gguf_layer_types(m, 0);
  copy_gguf_number(m, ".final_logit_softcapping", "final_logit_softcapping", config);
  describe_ropes(m, config);
  describe_heads(m, *windows, config);
  describe_shared_caches(m, config);
  // Keys are values in layers without a matrix of values. Layers that share a cache have neither.
  const int64_t own = m.layers() - config.at("num_kv_shared_layers").get<int64_t>();
  bool same = false;
  for (int64_t i = 0; i < own; ++i)
    same =
        same || !(in_gguf_layer(m, i, "attn_v.weight") || in_gguf_layer(m, i, "attn_qkv.weight"));
  config["attention_k_eq_v"] = same;
  config["hidden_size_per_layer_input"] =
      m.integer(".embedding_length_per_layer_input").value_or(0);
  config["vocab_size_per_layer_input"] = config.at("vocab_size");
  const bool experts = m.integer(".expert_count").value_or(0) != 0;
  config["enable_moe_block"] = experts;
  if (!experts) return;
  config["num_experts"] = m.require(".expert_count");
  config["top_k_experts"] = m.require(".expert_used_count");
  config["moe_intermediate_size"] = m.require(".expert_feed_forward_length");
}

}  // namespace walsh
