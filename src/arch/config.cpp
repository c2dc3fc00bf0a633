#include "arch/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/composite.h"
#include "arch/config_reader.h"
#include "arch/family.h"
#include "io/printable.h"

namespace walsh {
namespace {

// These limits are far above every published model, and low enough that products of two cannot
// overflow.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kHeadDimUnit = 8;  // Attention kernels process this many values at once.

std::string supported_architectures() {
  std::string list;
  for (const Family& family : families()) {
    list += list.empty() ? "" : ", ";
    list += family.architecture;
  }
  return list + ", " + supported_composites();
}

const Family& choose_family(ConfigReader& reader) {
  const std::string supported = "not supported; supported are " + supported_architectures();
  const auto type = reader.text("model_type");
  const Json* architectures = reader.value("architectures");
  const Family* family = type ? find_family(*type) : nullptr;
  if (architectures != nullptr) {
    if (!architectures->is_array() || architectures->size() != 1 ||
        !(*architectures)[0].is_string()) {
      reader.refuse("architectures", "expected a list of one name");
    }
    const auto name = (*architectures)[0].get<std::string>();
    bool known = false;
    for (const Family& candidate : families()) {
      if (candidate.architecture != name) continue;
      known = true;
      if (!type) family = &candidate;
    }
    if (!known || (family != nullptr && family->architecture != name)) {
      throw Error(ErrorCode::bad_input, reader.where(),
                  fmt::format("architecture \"{}\" is {}", printable(name), supported));
    }
  }
  if (family == nullptr) reader.refuse("model_type", supported);
  return *family;
}

// Reads the shape that all layers share, and returns traits that have it.
DecoderTraits read_shape(ConfigReader& reader, const char* norm_eps, ModelConfig& config) {
  DecoderTraits traits;
  const int64_t layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = reader.integer("hidden_size", 1, kMaxWidth);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.max_positions = reader.integer("max_position_embeddings", 1, kMaxPositions);
  config.tied_head = reader.boolean_or("tie_word_embeddings", false);
  traits.norm_eps = static_cast<float>(reader.number(norm_eps, 0, 1));
  LayerTraits layer;
  layer.intermediate = reader.optional_integer("intermediate_size", 0, 1, kMaxWidth);
  layer.heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  layer.kv_heads = reader.optional_integer("num_key_value_heads", layer.heads, 1, kMaxHeads);
  layer.head_dim = reader.optional_integer("head_dim", 0, 1, kMaxHeadDim);
  if (layer.head_dim == 0 && config.hidden % layer.heads == 0)
    layer.head_dim = config.hidden / layer.heads;
  traits.layers.assign(static_cast<size_t>(layers), layer);
  return traits;
}

// Refuses keys that change what the model computes, unless they have the one value that walsh
// supports.
void refuse_unsupported(ConfigReader& reader) {
  for (const char* key : {"hidden_act", "hidden_activation"})
    reader.only(key, "silu");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "attention_sinks",
                          "compression_config"})
    reader.only(key, nullptr);
  for (const char* key :
       {"attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"})
    reader.only(key, 1.0);
  for (const char* key :
       {"is_encoder_decoder", "add_cross_attention", "rope_interleaved", "mlp_bias",
        "attention_bias", "use_mrope", "use_qk_norm", "qk_layernorm", "use_sliding_window"})
    reader.only(key, false);
  reader.only("pruned_heads", Json::object());
  if (reader.pending("layer_types")) {
    for (const Json& type : *reader.value("layer_types"))
      if (type != "full_attention") reader.refuse("layer_types", "expected 'full_attention' only");
  }
  reader.only("sliding_window", nullptr);
}

void check_rope(int64_t head_dim, const RopeConfig& rope, const ConfigReader& reader) {
  const int64_t rotated = rotated_values(rope, head_dim);
  if (rotated < 2 || rotated % 2 != 0) {
    throw Error(ErrorCode::bad_input, reader.where(),
                fmt::format("rope of {} values of a head: expected an even number", rotated));
  }
  if (!rope.short_factor.empty() && static_cast<int64_t>(rope.short_factor.size()) != rotated / 2) {
    throw Error(
        ErrorCode::bad_input, reader.where(),
        fmt::format("rope has {} factors, expected {}", rope.short_factor.size(), rotated / 2));
  }
}

void check_layer(const LayerTraits& layer, const ConfigReader& reader) {
  const auto fail = [&](const std::string& reason) {
    throw Error(ErrorCode::bad_input, reader.where(), reason);
  };
  if (layer.intermediate == 0 && !layer.experts)
    reader.refuse("intermediate_size", "expected the width of the MLP");
  if (layer.head_dim == 0)
    reader.refuse("hidden_size", "not a multiple of num_attention_heads, and no head_dim");
  if (layer.heads % layer.kv_heads != 0) {
    fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                     layer.heads, layer.kv_heads));
  }
  if (layer.head_dim % kHeadDimUnit != 0)
    fail(fmt::format("head_dim is {}: expected a multiple of {}", layer.head_dim, kHeadDimUnit));
  if (layer.heads * layer.head_dim > kMaxWidth) {
    fail(fmt::format("{} heads of {} exceed the supported width {}", layer.heads, layer.head_dim,
                     kMaxWidth));
  }
}

// Gives layers a rope: if there are two, layers with a window use the second. All heads that use
// one rope have one size.
void choose_ropes(DecoderTraits& traits, const ModelConfig& config, const ConfigReader& reader) {
  for (const RopeConfig& rope : config.ropes) {
    if (rope.share == 1 || rope.kind == RopeKind::proportional || traits.partial_rope) continue;
    throw Error(ErrorCode::bad_input, reader.where(),
                "partial_rotary_factor: not supported for " + config.family);
  }
  for (LayerTraits& layer : traits.layers) {
    if (layer.rope < 0) continue;
    if (config.ropes.size() > 1) layer.rope = layer.window != 0 ? 1 : 0;
    check_rope(layer.head_dim, config.ropes[static_cast<size_t>(layer.rope)], reader);
  }
  // Each rope gets a table, even if no layer uses it.
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    int64_t size = 0;
    for (const LayerTraits& layer : traits.layers) {
      if (static_cast<size_t>(layer.rope) != i) continue;
      if (size != 0 && layer.head_dim != size) {
        throw Error(ErrorCode::bad_input, reader.where(),
                    fmt::format("heads of {} and of {} values have one rope: not supported", size,
                                layer.head_dim));
      }
      size = layer.head_dim;
    }
    check_rope(size != 0 ? size : traits.layers.front().head_dim, config.ropes[i], reader);
  }
}

// Adds the number of layers where only the list of their blocks tells it (Nemotron-H).
void add_layer_count(Json& object) {
  constexpr const char* kCount = "num_hidden_layers";
  if (object.contains(kCount)) return;
  const auto types = object.find("layers_block_type"),
             pattern = object.find("hybrid_override_pattern");
  if (types != object.end() && types->is_array()) {
    object[kCount] = types->size();
  } else if (pattern != object.end() && pattern->is_string()) {
    object[kCount] = pattern->get_ref<const std::string&>().size();
  }
}

ModelConfig read_text_model(Json object, const std::string& where) {
  ConfigReader type(object, where);
  const Family& family = choose_family(type);
  if (!family.defaults.empty()) {
    const Json defaults = Json::parse(family.defaults);
    for (const auto& [key, value] : defaults.items())
      if (!object.contains(key)) object[key] = value;
  }
  add_layer_count(object);
  ConfigReader reader(object, where);
  ModelConfig config;
  config.family = family.model_type;
  DecoderTraits traits = read_shape(reader, family.norm_eps, config);
  config.ropes = read_ropes(reader, family.rope);
  for (const RopeConfig& rope : config.ropes) {
    if (rope.kind != RopeKind::dynamic) continue;  // The context may exceed the training's.
    config.max_positions =
        std::min(kMaxPositions, static_cast<int64_t>(static_cast<double>(config.max_positions) *
                                                     std::min(rope.factor, 1e6)));
  }
  family.read(reader, traits, config);
  config.bos = reader.ids("bos_token_id");
  config.eos = reader.ids("eos_token_id");
  config.stored = read_stored_method(reader);
  refuse_unsupported(reader);
  reader.finish();
  for (const LayerTraits& layer : traits.layers)
    check_layer(layer, reader);
  choose_ropes(traits, config, reader);
  build_layers(traits, config);
  return config;
}

}  // namespace

ModelConfig parse_config(std::string_view json, std::string_view where) {
  const Json object = parse_json(json, where);
  const Composite* composite = find_composite(object);
  const std::string file(where);
  if (composite == nullptr) return read_text_model(object, file);
  ModelConfig config =
      read_text_model(text_config(object, *composite, file), file + ": text_config");
  config.whole = composite->architecture;
  config.stored_names = text_names();
  return config;
}

int64_t rope_head_dim(const ModelConfig& config, size_t rope) {
  int64_t widest = 0;
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    if (a.rope == static_cast<int>(rope)) return a.head_dim;
    widest = std::max(widest, a.head_dim);
  }
  return widest;  // Then no layer, or none of this part of a model, uses it.
}

ModelConfig ahead_config(const ModelConfig& config) {
  ModelConfig own = config;
  own.layers = config.ahead.layer;
  own.head_input.norm = config.ahead.norm;
  own.layer_embedding = {};
  own.ahead = {};
  for (const TensorShape& tensor : model_tensors(config))
    own.ignored.push_back(tensor.name);
  return own;
}

bool is_recurrent(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerDesc& layer) { return layer.has_state(); });
}

std::vector<TensorShape> model_tensors(const ModelConfig& c) {
  std::vector<TensorShape> list;
  list.push_back({c.embedding, c.vocab, c.hidden});
  if (c.layer_embedding.present())
    list.push_back({c.layer_embedding.weight, c.vocab, c.layer_embedding.cols});
  for (const LayerDesc& layer : c.layers) {
    const std::vector<VectorDesc> vectors = layer_vectors(layer);
    for (const VectorDesc& v : vectors)
      if (v.is_gain) list.push_back({v.name, v.rows, v.cols});
    for (const MatrixDesc& m : layer.matrices) {
      list.push_back({m.weight, m.rows, m.cols});
      if (!m.bias.empty()) list.push_back({m.bias, 1, m.rows});
    }
    for (const VectorDesc& v : vectors)
      if (!v.is_gain && v.form != VectorDesc::Form::constant)
        list.push_back({v.name, v.rows, v.cols});
  }
  list.push_back({c.head_input.norm.weight, 1, c.hidden});
  if (!c.tied_head) list.push_back({c.head.weight, c.head.rows, c.head.cols});
  return list;
}

LayerWidths widest(const ModelConfig& config) {
  LayerWidths w;
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    w.query = std::max(w.query, a.query_width());
    w.kv = std::max(w.kv, a.kv_width());
    w.mlp = std::max(w.mlp, layer.mlp.width);
    w.head_dim = std::max(w.head_dim, a.cache_dim());
    w.heads = std::max(w.heads, a.heads);
    w.kv_heads = std::max(w.kv_heads, a.cache_heads());
    const DeltaNetDesc& d = layer.delta_net;
    w.query_rows = std::max(w.query_rows, a.query_rows());
    w.mixed = std::max({w.mixed, a.query_width(), d.value_width()});
    w.channels = std::max(w.channels, d.channels());
    w.value_heads = std::max(w.value_heads, d.value_heads);
    w.latent = std::max(w.latent, a.latent.rank);
    w.query_latent = std::max(w.query_latent, a.latent.query_rank);
    w.shared_key = std::max(w.shared_key, a.latent.rope_dim);
    w.experts = std::max(w.experts, layer.experts.count);
    w.chosen = std::max(w.chosen, layer.experts.chosen);
    w.expert = std::max(w.expert, layer.experts.width);
  }
  return w;
}

}  // namespace walsh
