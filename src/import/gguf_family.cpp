#include "import/gguf_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "io/printable.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// What most architectures have; attn_q and ffn_up may have biases as well.
constexpr GgufName kCommon[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr GgufName kOutside[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
// Norms in front of and behind both blocks.
constexpr GgufName kFourNorms[] = {{"ffn_norm", "pre_feedforward_layernorm"},
                                   {"post_attention_norm", "post_attention_layernorm"},
                                   {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr GgufName kPhi3Names[] = {{"ffn_up", "mlp.gate_up_proj"}};

bool has(const GgufMetadata& m, std::string_view tensor) {
  return m.content().find_tensor(tensor) != nullptr;
}

void copy_number(const GgufMetadata& m, std::string_view key, const char* name, Json& config) {
  if (const auto value = m.number(key)) config[name] = *value;
}

void describe_llama(const GgufMetadata& m, Json& config) {
  if (m.integer(".expert_count").value_or(0) != 0)
    m.refuse(".expert_count", "models with experts are not read from GGUF files");
  config["attention_bias"] = has(m, "blk.0.attn_q.bias");
  config["mlp_bias"] = has(m, "blk.0.ffn_up.bias");
}

void describe_qwen2(const GgufMetadata&, Json& config) {
  config["use_sliding_window"] = false;
}

void describe_qwen3(const GgufMetadata& m, Json& config) {
  config["attention_bias"] = has(m, "blk.0.attn_q.bias");
  config["use_sliding_window"] = false;
}

// The file does not tell the scale of the attention; llama.cpp knows that only the 27B model, which
// has 46 layers, does not take the head's dimension.
void describe_gemma2(const GgufMetadata& m, Json& config) {
  constexpr int64_t kLayersOf27B = 46;
  copy_number(m, ".attn_logit_softcapping", "attn_logit_softcapping", config);
  copy_number(m, ".final_logit_softcapping", "final_logit_softcapping", config);
  config["sliding_window"] = m.require(".attention.sliding_window");
  const int64_t heads = m.require(".attention.head_count");
  const bool is_27b = m.require(".block_count") == kLayersOf27B && heads > 0;
  config["query_pre_attn_scalar"] =
      is_27b ? m.require(".embedding_length") / heads : m.require(".attention.key_length");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config.erase("hidden_act");
}

void describe_phi3(const GgufMetadata& m, Json& config) {
  const int64_t window = m.uniform_integer(".attention.sliding_window").value_or(0);
  config["sliding_window"] = window == 0 ? Json() : Json(window);
}

constexpr GgufFamily kFamilies[] = {
    {"gemma2", "gemma2", "Gemma2ForCausalLM", kFourNorms, false, 1, describe_gemma2},
    {"llama", "llama", "LlamaForCausalLM", {}, true, 0, describe_llama},
    {"phi3", "phi3", "Phi3ForCausalLM", kPhi3Names, false, 0, describe_phi3},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", {}, false, 0, describe_qwen2},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", {}, false, 0, describe_qwen3},
};

// Tensors that stand for keys of the config.
constexpr std::string_view kRopeTensors[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                             "rope_factors_short.weight"};

const GgufName* find(std::span<const GgufName> names, std::string_view name) {
  const auto place = std::find_if(names.begin(), names.end(),
                                  [&](const GgufName& entry) { return entry.gguf == name; });
  return place == names.end() ? nullptr : &*place;
}

}  // namespace

const GgufFamily& gguf_family(const GgufMetadata& metadata) {
  std::string known;
  for (const GgufFamily& family : kFamilies) {
    if (family.architecture == metadata.architecture()) return family;
    known += known.empty() ? "" : ", ";
    known += family.architecture;
  }
  metadata.refuse("general.architecture",
                  fmt::format("\"{}\" is not read; known are {}",
                              printable(metadata.architecture(), 48), known));
}

std::optional<std::string> checkpoint_name(const GgufFamily& family, std::string_view name,
                                           std::string_view path) {
  if (std::find(std::begin(kRopeTensors), std::end(kRopeTensors), name) != std::end(kRopeTensors))
    return std::nullopt;
  const size_t dot = name.rfind('.');
  const std::string_view stem = name.substr(0, dot);
  const std::string_view kind = dot == std::string_view::npos ? "" : name.substr(dot);
  if (kind == ".weight" || kind == ".bias") {
    if (const GgufName* found = find(kOutside, stem))
      return fmt::format("{}{}", found->checkpoint, kind);
    if (stem.starts_with("blk.")) {
      const size_t end = stem.find('.', 4);
      const std::string_view layer = stem.substr(4, end == std::string_view::npos ? end : end - 4);
      const bool is_number =
          !layer.empty() && layer.size() < 6 &&
          std::all_of(layer.begin(), layer.end(), [](unsigned char c) { return std::isdigit(c); });
      const std::string_view inner = end == std::string_view::npos ? "" : stem.substr(end + 1);
      const GgufName* found = find(family.names, inner);
      if (found == nullptr) found = find(kCommon, inner);
      if (is_number && found != nullptr) {
        return fmt::format("model.layers.{}.{}{}", layer, found->checkpoint, kind);
      }
    }
  }
  throw Error(ErrorCode::bad_input, std::string(path) + ": tensor " + printable(name),
              "is not known for architecture " + std::string(family.architecture));
}

}  // namespace walsh
