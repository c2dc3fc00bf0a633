#include "import/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "import/ggml_blocks.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Special tokens with these texts end a turn in files in which no key names such tokens.
constexpr auto kEnds = std::to_array<std::string_view>(
    {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
     "< EOT >", "<|eot|>", "<|end_of_text|>", "<|return|>", "<turn|>", "<|tool_response>", "[e~["});
constexpr const char* kNormEps = ".attention.layer_norm_rms_epsilon";
constexpr const char* kLayerNormEps = ".attention.layer_norm_epsilon";
constexpr int64_t kMaxFactors = 1024;
constexpr double kAnyNumber = std::numeric_limits<double>::lowest();

// Reads an F32 vector that stands for a list in the config.
Json read_factors(const GgufMetadata& m, const GgufMetadata::Found& found) {
  const GgufTensor& tensor = *found.tensor;
  const std::string where = m.path() + ": tensor " + tensor.name;
  if (tensor.type != static_cast<uint32_t>(GgmlType::f32) || tensor.dims.size() != 1 ||
      tensor.dims[0] > kMaxFactors) {
    throw Error(ErrorCode::bad_input, where, "expected a vector of F32 factors");
  }
  std::vector<float> values(tensor.dims[0]);
  decode_ggml(tensor.type, found.file.subspan(tensor.offset, tensor.bytes), values.data());
  return values;
}

int64_t head_dim(const GgufMetadata& m) {
  // With latent attention the key lengths are those of the latents; the head dimension of
  // config.json is that of the part with rope.
  if (m.integer(".attention.kv_lora_rank").value_or(0) != 0)
    return m.require(".rope.dimension_count");
  const int64_t heads = m.require(".attention.head_count");
  const int64_t usual = heads > 0 ? m.require(".embedding_length") / heads : 0;
  const int64_t dim = m.uniform_integer(".attention.key_length").value_or(usual);
  if (m.uniform_integer(".attention.value_length").value_or(dim) != dim)
    m.refuse(".attention.value_length", "differs from the keys' length, which is not supported");
  return dim;
}

// Factors that divide the frequencies are presented as longrope's, whatever produced them.
void add_factors(const GgufMetadata& m, const GgufMetadata::Found& short_factors,
                 const GgufMetadata::Found& long_factors, Json& rope) {
  rope["rope_type"] = "longrope";
  rope["short_factor"] = read_factors(m, short_factors);
  rope["long_factor"] = read_factors(m, long_factors);
  rope["attention_factor"] = m.number(".rope.scaling.attn_factor").value_or(1);
  rope["original_max_position_embeddings"] =
      m.integer(".rope.scaling.original_context_length").value_or(m.require(".context_length"));
}

// llama.cpp multiplies yarn's result by attn_factor; its converter writes the whole factor of a
// checkpoint that has one as yarn_attn_factor.
void add_yarn(const GgufMetadata& m, Json& rope) {
  constexpr const char* kExtrapolation = ".rope.scaling.yarn_ext_factor";
  const auto factor = rope.at("factor").get<double>();
  const double usual = factor > 1 ? 1 + 0.1 * std::log(factor) : 1;
  if (const auto more = m.number(".rope.scaling.attn_factor"); more && *more != 1)
    rope["attention_factor"] = *more * usual;
  constexpr std::array<std::array<const char*, 2>, 3> kYarn = {
      {{".rope.scaling.yarn_attn_factor", "attention_factor"},
       {".rope.scaling.yarn_beta_fast", "beta_fast"},
       {".rope.scaling.yarn_beta_slow", "beta_slow"}}};
  for (const auto& [key, name] : kYarn)
    if (const auto value = m.number(key)) rope[name] = *value;
  const double extrapolation = m.number(kExtrapolation, kAnyNumber).value_or(1);
  if (extrapolation >= 0 && extrapolation != 1)
    m.refuse(kExtrapolation, "is not 1, which is not supported");
}

Json rope_parameters(const GgufMetadata& m, int64_t dim) {
  const int64_t rotated = m.integer(".rope.dimension_count").value_or(dim);
  if (rotated <= 0 || rotated > dim) m.refuse(".rope.dimension_count", "exceeds the heads");
  Json rope = {{"rope_theta", m.number(".rope.freq_base", 1).value_or(10000)},
               {"rope_type", "default"},
               {"partial_rotary_factor", static_cast<double>(rotated) / static_cast<double>(dim)}};
  const auto all = m.find_tensor("rope_freqs.weight");
  const auto shorter = m.find_tensor("rope_factors_short.weight");
  const auto longer = m.find_tensor("rope_factors_long.weight");
  if (all.tensor != nullptr) add_factors(m, all, all, rope);
  if (shorter.tensor != nullptr && longer.tensor != nullptr) add_factors(m, shorter, longer, rope);
  // Files without a type mean linear scaling; old ones have another key for it.
  const double factor =
      m.number(".rope.scaling.factor").value_or(m.number(".rope.scale_linear").value_or(0));
  const std::string kind =
      m.text(".rope.scaling.type").value_or(factor != 0 && factor != 1 ? "linear" : "none");
  if (kind == "none" || kind == "longrope") return rope;
  if (all.tensor != nullptr || shorter.tensor != nullptr)
    m.refuse(".rope.scaling.type", "\"" + kind + "\" contradicts the tensors with factors");
  rope["rope_type"] = kind;
  rope["factor"] = factor == 0 ? 1 : factor;
  const auto original = m.integer(".rope.scaling.original_context_length");
  if (kind == "yarn") add_yarn(m, rope);
  if (kind == "yarn" && original) rope["original_max_position_embeddings"] = *original;
  return rope;
}

// Returns the rows of the embedding, which are as many as there are tokens.
int64_t vocabulary(const GgufMetadata& m) {
  constexpr const char* kTokens = "tokenizer.ggml.tokens";
  const GgufTensor* embedding = m.find_tensor("token_embd.weight").tensor;
  if (embedding == nullptr || embedding->dims.size() != 2)
    throw Error(ErrorCode::bad_input, m.path() + ": tensor token_embd.weight", "no such matrix");
  const uint64_t rows = embedding->dims[1];
  if (const GgufValue* tokens = m.value(kTokens); tokens != nullptr && tokens->count() != rows) {
    m.refuse(kTokens, "has " + std::to_string(tokens->count()) + " tokens, but token_embd.weight " +
                          std::to_string(rows) + " rows");
  }
  return static_cast<int64_t>(rows);
}

}  // namespace

std::string gguf_config(const GgufMetadata& m, const GgufFamily& family) {
  const int64_t heads = m.require(".attention.head_count"), dim = head_dim(m);
  if (dim <= 0) m.refuse(".attention.head_count", "leaves no width for a head");
  const auto eps = m.number(family.layer_norms ? kLayerNormEps : kNormEps);
  if (!eps) m.refuse(family.layer_norms ? kLayerNormEps : kNormEps, "is missing");
  // Families whose layers differ describe the sizes themselves.
  const auto size = [&](const char* key) {
    return family.layers_differ ? std::nullopt : m.uniform_integer(key);
  };
  Json config = {{"model_type", family.model_type},
                 {"architectures", Json::array({family.model_class})},
                 {"num_hidden_layers", m.layers()},
                 {"hidden_size", m.require(".embedding_length")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", size(".attention.head_count_kv").value_or(heads)},
                 {"head_dim", dim},
                 {"max_position_embeddings", m.require(".context_length")},
                 {family.layer_norms ? "layer_norm_eps" : "rms_norm_eps", *eps},
                 {"vocab_size", vocabulary(m)},
                 {"tie_word_embeddings", !m.has_tensor("output.weight")},
                 {"hidden_act", "silu"},
                 {"rope_parameters", rope_parameters(m, dim)}};
  // Models without an MLP may lack this width.
  const bool has_experts = m.integer(".expert_count").value_or(0) != 0;
  if (const auto width = size(".feed_forward_length"); width && *width != 0) {
    config["intermediate_size"] = *width;
  } else if (!has_experts && !family.layers_differ) {
    config["intermediate_size"] = m.require(".feed_forward_length");
  }
  if (const auto id = m.integer("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  if (const auto id = m.integer("tokenizer.ggml.eos_token_id")) config["eos_token_id"] = *id;
  if (family.describe != nullptr) family.describe(m, config);
  m.refuse_others();
  return config.dump();
}

std::string gguf_generation_config(const GgufMetadata& m) {
  std::set<int64_t> ends;
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = m.integer(key)) ends.insert(*id);
  }
  constexpr const char *kTokens = "tokenizer.ggml.tokens", *kTypes = "tokenizer.ggml.token_type";
  constexpr int64_t kNormal = 1;
  const GgufValue *tokens = m.value(kTokens), *types = m.value(kTypes);
  if (tokens != nullptr && types != nullptr) {
    const auto& texts = tokens->as_texts(m.where(kTokens));
    const auto kinds = types->as_ints(m.where(kTypes));
    for (size_t id = 0; id < std::min(texts.size(), kinds.size()); ++id) {
      const bool ends_turn = std::find(kEnds.begin(), kEnds.end(), texts[id]) != kEnds.end();
      if (ends_turn && kinds[id] != kNormal) ends.insert(static_cast<int64_t>(id));
    }
  }
  Json config = Json::object();
  if (!ends.empty()) config["eos_token_id"] = ends;
  constexpr std::array<std::array<const char*, 2>, 4> kSampling = {
      {{"general.sampling.temp", "temperature"},
       {"general.sampling.top_p", "top_p"},
       {"general.sampling.min_p", "min_p"},
       {"general.sampling.penalty_repeat", "repetition_penalty"}}};
  for (const auto& [key, name] : kSampling)
    if (const auto value = m.number(key, kAnyNumber)) config[name] = *value;
  if (const auto k = m.integer("general.sampling.top_k")) config["top_k"] = *k;
  return config.dump();
}

}  // namespace walsh
