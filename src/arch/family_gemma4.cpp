// Gemma 4 (its text part) has two kinds of layers, with and without a window, whose heads differ in
// size and whose ropes differ in kind. Values have a norm. Late layers may attend to keys and
// values of earlier ones, experts stand beside the MLP, and every layer may have an embedding of
// the token.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "arch/family.h"

namespace walsh {
namespace {

// transformers has these defaults for absent keys.
constexpr int64_t kShortWindow = 512, kDefaultPattern = 6, kDefaultWideHead = 512;
constexpr int64_t kMost = int64_t{1} << 31, kMaxWidth = int64_t{1} << 20, kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024, kMaxExperts = 4096;

constexpr std::string_view kDefaults = R"({
    "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "rope_parameters": {
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
      "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                         "rope_theta": 1000000.0}}})";

// The last layer never has a window, whatever the list says.
void read_kinds(ConfigReader& reader, DecoderTraits& traits) {
  const int64_t window = reader.integer_or("sliding_window", kShortWindow, 1, kMost);
  if (!read_layer_types(reader, window, traits))
    set_window_pattern(window, kDefaultPattern, traits);
  traits.layers.back().window = 0;
}

// Reads sizes that differ between layers. transformers 5.10 and later writes them as an object of
// layers in place of the global sizes.
void read_sizes_of_layers(const Json& sizes, ConfigReader& reader, DecoderTraits& traits) {
  constexpr const char* kKey = "per_layer_config";
  if (!sizes.is_object()) reader.refuse(kKey, "expected an object of layers");
  for (const auto& [layer, own] : sizes.items()) {
    size_t index = 0;
    const char* const end = layer.data() + layer.size();
    const auto [stop, failure] = std::from_chars(layer.data(), end, index);
    if (failure != std::errc() || stop != end || index >= traits.layers.size())
      reader.refuse(kKey, "expected numbers of layers");
    if (!own.is_object()) reader.refuse(kKey, "expected an object for each layer");
    ConfigReader each(own, fmt::format("{}: {}: {}", reader.where(), kKey, layer));
    LayerTraits& to = traits.layers[index];
    to.head_dim = each.optional_integer("head_dim", to.head_dim, 1, kMaxHeadDim);
    to.kv_heads = each.optional_integer("num_key_value_heads", to.kv_heads, 1, kMaxHeads);
    each.finish();
  }
}

void read_heads(ConfigReader& reader, DecoderTraits& traits) {
  const bool same = reader.boolean_or("attention_k_eq_v", false);
  const int64_t wide = reader.integer_or("global_head_dim", kDefaultWideHead, 1, kMaxHeadDim);
  const int64_t wide_kv = reader.optional_integer("num_global_key_value_heads", 0, 1, kMaxHeads);
  const Json* sizes = reader.value("per_layer_config");
  for (LayerTraits& layer : traits.layers) {
    layer.scale = 1;
    layer.value_eps = traits.norm_eps;
    if (layer.window != 0) continue;
    layer.values_are_keys = same;
    if (sizes != nullptr) continue;
    layer.head_dim = wide;
    if (same && wide_kv != 0) layer.kv_heads = wide_kv;
  }
  if (sizes != nullptr) read_sizes_of_layers(*sizes, reader, traits);
}

// Makes the last `num_kv_shared_layers` layers attend to what the last layer of their kind before
// them has stored; they may have MLPs of twice the width. Published files also have matrices of
// keys and values for these layers, which nothing reads.
void read_shared_caches(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  constexpr const char* kKey = "num_kv_shared_layers";
  const auto layers = static_cast<int64_t>(traits.layers.size());
  const int64_t shared = reader.integer_or(kKey, 0, 0, kMost);
  const bool wide = reader.boolean_or("use_double_wide_mlp", false);
  if (shared >= layers) reader.refuse(kKey, "expected fewer than there are layers");
  for (int64_t i = layers - shared; i < layers; ++i) {
    LayerTraits& own = traits.layers[static_cast<size_t>(i)];
    for (int64_t from = 0; from < layers - shared; ++from)
      if (traits.layers[static_cast<size_t>(from)].window == own.window)
        own.cache_of = static_cast<int>(from);
    if (own.cache_of < 0)
      reader.refuse(kKey, fmt::format("no layer before has the kind of layer {}", i));
    const LayerTraits& from = traits.layers[static_cast<size_t>(own.cache_of)];
    if (from.head_dim != own.head_dim || from.kv_heads != own.kv_heads)
      reader.refuse(kKey, fmt::format("layer {} has other heads than those it shares", i));
    if (wide) own.intermediate *= 2;
    for (const char* unused : {"k_proj.", "v_proj.", "k_norm.", "v_norm."})
      config.left_out.push_back(fmt::format("{}{}.self_attn.{}", traits.names.layers, i, unused));
  }
}

void read_experts(ConfigReader& reader, DecoderTraits& traits) {
  const bool present = reader.boolean_or("enable_moe_block", false);
  ExpertTraits& e = traits.experts;
  const int64_t count = reader.optional_integer("num_experts", 0, 1, kMaxExperts);
  const int64_t chosen = reader.optional_integer("top_k_experts", 0, 1, kMaxExperts);
  const int64_t width = reader.optional_integer("moe_intermediate_size", 0, 1, kMaxWidth);
  // Older files have another name for the width of an expert.
  const int64_t old = reader.optional_integer("expert_intermediate_size", 0, 1, kMaxWidth);
  if (!present) return;
  e.count = count;
  e.chosen = chosen;
  e.width = width != 0 ? width : old;
  if (count == 0) reader.refuse("num_experts", "expected the number of experts");
  if (chosen == 0 || chosen > count)
    reader.refuse("top_k_experts", fmt::format("expected 1 to {}", count));
  if (e.width == 0) reader.refuse("moe_intermediate_size", "expected the width of an expert");
  TensorNames& names = traits.names;
  names.vectors[LayerVector::expert_factors] = "router.per_expert_scale";
  names.router = "router.proj";
  names.router_norm = "router.scale";
  names.experts = "experts.";
  names.all_gate_up = "experts.gate_up_proj";
  names.all_down = "experts.down_proj";
  names.experts_norm = "pre_feedforward_layernorm_2";
  names.after_shared_norm = "post_feedforward_layernorm_1";
  names.after_experts_norm = "post_feedforward_layernorm_2";
  for (LayerTraits& layer : traits.layers)
    layer.experts = true;
}

void read_layer_embedding(ConfigReader& reader, DecoderTraits& traits, const ModelConfig& config) {
  constexpr int64_t kDefaultWidth = 256, kDefaultVocab = 262144;
  const auto layers = static_cast<int64_t>(traits.layers.size());
  traits.layer_embedding =
      reader.integer_or("hidden_size_per_layer_input", kDefaultWidth, 0, kMaxWidth / layers);
  const int64_t vocab = reader.integer_or("vocab_size_per_layer_input", kDefaultVocab, 1, kMost);
  if (traits.layer_embedding > 0 && vocab != config.vocab)
    reader.refuse("vocab_size_per_layer_input",
                  fmt::format("expected {}, as vocab_size", config.vocab));
}

void read_gemma4(ConfigReader& reader, DecoderTraits& traits, ModelConfig& config) {
  // A text is read in one direction, whatever this says about images.
  if (reader.pending("use_bidirectional_attention") &&
      *reader.value("use_bidirectional_attention") != "vision")
    reader.refuse("use_bidirectional_attention", "not supported, expected 'vision' or null");
  read_gemma(reader, traits, config);
  traits.gain_offset = 0;
  traits.names.mlp_norm = "pre_feedforward_layernorm";
  traits.names.vectors[LayerVector::stream_factor] = "layer_scalar";
  traits.norms_after = traits.qk_norm = true;
  config.logit_cap = read_cap(reader, "final_logit_softcapping", 0);
  read_kinds(reader, traits);
  read_heads(reader, traits);
  read_shared_caches(reader, traits, config);
  read_experts(reader, traits);
  read_layer_embedding(reader, traits, config);
}

}  // namespace

const Family kGemma4 = {"gemma4_text",
                        "Gemma4ForCausalLM",
                        read_gemma4,
                        {.theta = 1e6, .per_kind = true, .local_theta = 1e4, .proportional = true},
                        kDefaults};

}  // namespace walsh
