// Llama 4 (its text part) has layers with rope, which attend to chunks of positions, and layers
// without, which attend to all. Expert weights multiply the experts' inputs, and there is a shared
// expert.
#include <string>

#include "arch/family.h"

namespace walsh {
namespace {

// transformers has these defaults for absent keys.
constexpr int64_t kDefaultChunk = 8192, kDefaultGrowthStep = 8192, kDefaultMlp = 16384;
constexpr double kDefaultGrowth = 0.1;
constexpr int64_t kMost = int64_t{1} << 31, kMaxWidth = int64_t{1} << 20;

// Gives chunks to the layers that `layer_types` lists or, without the list, to the layers with
// rope.
void read_chunks(ConfigReader& reader, DecoderTraits& traits) {
  const int64_t absent = reader.has("attention_chunk_size") ? 0 : kDefaultChunk;
  const int64_t chunk = reader.optional_integer("attention_chunk_size", absent, 1, kMost);
  const std::vector<bool> listed = layers_of_kind(reader, "chunked_attention", traits);
  for (size_t i = 0; i < traits.layers.size(); ++i) {
    const bool chunked = listed.empty() ? traits.layers[i].rope >= 0 : listed[i];
    if (!chunked) continue;
    if (chunk == 0) reader.refuse("attention_chunk_size", "expected a number of positions");
    traits.layers[i].chunk = chunk;
  }
}

// Files of the first version have a number instead of a flag.
bool read_growth(ConfigReader& reader) {
  const char* key = "attn_temperature_tuning";
  const Json* value = reader.value(key);
  if (value == nullptr) return !reader.is_null(key);
  if (value->is_number_unsigned()) return *value != 0;
  return reader.boolean_or(key, true);
}

// Reads what replaces rope in layers without it, and the norm that follows rope in layers with it.
void read_queries(ConfigReader& reader, DecoderTraits& traits) {
  const bool unit = reader.boolean_or("use_qk_norm", true);
  const bool grow = read_growth(reader);
  const double growth = reader.number_or("attn_scale", kDefaultGrowth, 0, 1e3);
  const int64_t step = reader.integer_or("floor_scale", kDefaultGrowthStep, 1, kMost);
  for (LayerTraits& layer : traits.layers) {
    if (layer.rope >= 0 && unit) layer.unit_eps = traits.norm_eps;
    if (layer.rope >= 0 || !grow) continue;
    layer.growth = static_cast<float>(growth);
    layer.growth_step = step;
  }
}

// Gives experts to the layers that `moe_layers` lists, or to every `interleave_moe_layer_step`-th.
void read_expert_layers(ConfigReader& reader, DecoderTraits& traits) {
  const auto step =
      static_cast<size_t>(reader.integer_or("interleave_moe_layer_step", 1, 1, kMost));
  const bool listed = reader.value("moe_layers") != nullptr;
  for (size_t i = 0; i < traits.layers.size(); ++i)
    traits.layers[i].experts = !listed && (i + 1) % step == 0;
  for (const size_t layer : listed_layers(reader, "moe_layers", traits))
    traits.layers[layer].experts = true;
}

void read_llama4(ConfigReader& reader, DecoderTraits& traits, ModelConfig&) {
  TensorNames& names = traits.names;
  names.gate = "feed_forward.gate_proj";
  names.up = "feed_forward.up_proj";
  names.down = "feed_forward.down_proj";
  names.router = "feed_forward.router";
  names.shared = "feed_forward.shared_expert.";
  names.experts = "feed_forward.experts.";
  names.all_gate_up = "feed_forward.experts.gate_up_proj";
  names.all_down = "feed_forward.experts.down_proj";
  traits.paired_rope = true;
  traits.qkv_bias = traits.o_bias = reader.boolean_or("attention_bias", false);
  read_layers_without_rope(reader, traits);
  read_chunks(reader, traits);
  read_queries(reader, traits);
  read_expert_counts(reader, "intermediate_size", traits);
  read_expert_layers(reader, traits);
  ExpertTraits& e = traits.experts;
  e.order = ExpertOrder::columns;
  e.routing.sigmoid = e.routing.of_input = true;
  e.routing.normalized = false;
  const int64_t mlp = reader.integer_or("intermediate_size_mlp", kDefaultMlp, 1, kMaxWidth);
  for (LayerTraits& layer : traits.layers) {
    layer.intermediate = mlp;
    layer.shared = e.width;
  }
  reader.value("for_llm_compressor");  // A quantization tool writes this key.
}

}  // namespace

const Family kLlama4 = {"llama4_text", "Llama4ForCausalLM", read_llama4, {.theta = 5e5}};

}  // namespace walsh
