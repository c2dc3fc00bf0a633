#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/config_reader.h"
#include "model/family.h"
#include "model/rope.h"

namespace walsh {
namespace {

// Far above every published model, low enough that no product of two of them overflows.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kHeadDimUnit = 8;  // what the attention kernels work in

std::string supported_architectures() {
  std::string list;
  for (const Family& family : families()) {
    list += list.empty() ? "" : ", ";
    list += family.architecture;
  }
  return list;
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
      throw Error(
          ErrorCode::bad_input, reader.where(),
          fmt::format("architecture {} is {}", describe_json((*architectures)[0]), supported));
    }
  }
  if (family == nullptr) reader.refuse("model_type", supported);
  return *family;
}

void read_shape(ConfigReader& reader, ModelConfig& config) {
  config.layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.hidden = reader.integer("hidden_size", 1, kMaxWidth);
  config.intermediate = reader.integer("intermediate_size", 1, kMaxWidth);
  config.heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  config.kv_heads = reader.integer_or("num_key_value_heads", config.heads, 1, kMaxHeads);
  config.head_dim = reader.integer_or("head_dim", 0, 1, kMaxHeadDim);
  config.vocab = reader.integer("vocab_size", 1, kMaxVocab);
  config.max_positions = reader.integer("max_position_embeddings", 1, kMaxPositions);
  config.norm_eps = static_cast<float>(reader.number("rms_norm_eps", 0, 1));
  config.tied_head = reader.boolean_or("tie_word_embeddings", false);
  config.windows.assign(static_cast<size_t>(config.layers), 0);
}

// Known keys that change the function, with the only value that this forward pass has.
void refuse_unsupported(ConfigReader& reader) {
  for (const char* key : {"hidden_act", "hidden_activation"})
    reader.only(key, "silu");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "attention_sinks",
                          "quantization_config", "compression_config"})
    reader.only(key, nullptr);
  for (const char* key : {"partial_rotary_factor", "attention_multiplier", "residual_multiplier",
                          "embedding_multiplier", "logits_scaling"})
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

void check_consistency(const ModelConfig& c, const std::string& where) {
  const auto fail = [&](const std::string& reason) {
    throw Error(ErrorCode::bad_input, where, reason);
  };
  if (c.heads % c.kv_heads != 0) {
    fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", c.heads,
                     c.kv_heads));
  }
  if (c.head_dim % kHeadDimUnit != 0) {
    fail(fmt::format("head_dim is {}: expected a multiple of {}", c.head_dim, kHeadDimUnit));
  }
  if (c.query_width() > kMaxWidth) {
    fail(fmt::format("{} heads of {} exceed the supported width {}", c.heads, c.head_dim,
                     kMaxWidth));
  }
}

}  // namespace

ModelConfig parse_config(std::string_view json, std::string_view where) {
  const Json object = parse_json(json, where);
  ConfigReader reader(object, std::string(where));
  ModelConfig config;
  const Family& family = choose_family(reader);
  config.family = family.model_type;
  read_shape(reader, config);
  if (config.head_dim == 0) {
    if (config.hidden % config.heads != 0) {
      reader.refuse("hidden_size", "not a multiple of num_attention_heads, and no head_dim");
    }
    config.head_dim = config.hidden / config.heads;
  }
  family.read(reader, config);
  config.rope = read_rope(reader);
  config.bos = reader.ids("bos_token_id");
  config.eos = reader.ids("eos_token_id");
  refuse_unsupported(reader);
  reader.finish();
  check_consistency(config, reader.where());
  return config;
}

}  // namespace walsh
