#include "model/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/aligned.h"
#include "base/half.h"
#include "base/random.h"
#include "base/stop.h"
#include "codec/codec.h"
#include "codec/product/product.h"

namespace walsh {
namespace {

struct Shape {
  std::string_view name;
  int layers, hidden, intermediate, heads, kv_heads, vocab;
  std::string_view rope;
  std::string_view model_type = "llama", architecture = "LlamaForCausalLM";
  std::string_view others = "";  // It has further keys of the family, each after a comma.
  std::string_view gate = "silu";
};

constexpr std::string_view kPlainRope = R"({"rope_type": "default", "rope_theta": 10000.0})";
constexpr std::string_view kLongRope = R"({"rope_type": "default", "rope_theta": 1000000.0})";
constexpr std::string_view kLlama31Rope =
    R"({"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})";

constexpr std::string_view kGptOssRope =
    R"({"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
         "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096})";
constexpr std::string_view kDeepseekRope =
    R"({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32.0,
         "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707,
         "original_max_position_embeddings": 4096})";
constexpr std::string_view kQwen35Rope =
    R"({"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25})";

constexpr std::string_view kGemma4Rope =
    R"({"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                           "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})";
constexpr std::string_view kGemmaGate = "gelu_pytorch_tanh";

constexpr auto kShapes = std::to_array<Shape>({
    {"tiny", 2, 256, 344, 4, 2, 500, kPlainRope},
    {"1b", 22, 2048, 5632, 32, 4, 32000, kPlainRope},
    {"2b", 8, 4096, 14336, 32, 8, 32000, R"({"rope_type": "default", "rope_theta": 500000.0})"},
    {"8b", 32, 4096, 14336, 32, 8, 128256, kLlama31Rope},
    {"70b", 80, 8192, 28672, 64, 8, 128256, kLlama31Rope},
    {"tiny-moe", 2, 256, 344, 4, 2, 500, kLongRope, "qwen3_moe", "Qwen3MoeForCausalLM",
     R"(, "head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": true,
        "moe_intermediate_size": 128)"},
    {"30b-a3b", 48, 2048, 6144, 32, 4, 151936, kLongRope, "qwen3_moe", "Qwen3MoeForCausalLM",
     R"(, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
        "moe_intermediate_size": 768)"},
    {"gpt-oss-20b", 24, 2880, 2880, 64, 8, 201088, kGptOssRope, "gpt_oss", "GptOssForCausalLM",
     R"(, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
        "attention_bias": true, "swiglu_limit": 7.0)"},
    {"deepseek-v2-lite", 27, 2048, 10944, 16, 16, 102400, kDeepseekRope, "deepseek_v2",
     "DeepseekV2ForCausalLM",
     R"(, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1)"},
    {"tiny-latent", 2, 256, 344, 4, 4, 500, kDeepseekRope, "deepseek_v3", "DeepseekV3ForCausalLM",
     R"(, "q_lora_rank": 128, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32,
        "v_head_dim": 64, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "n_group": 4, "topk_group": 2, "moe_intermediate_size": 128, "first_k_dense_replace": 1)"},
    {"tiny-chunks", 3, 256, 344, 4, 2, 500, kLongRope, "llama4_text", "Llama4ForCausalLM",
     R"(, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 512,
        "attention_chunk_size": 90, "no_rope_layer_interval": 3)"},
    {"tiny-delta", 4, 256, 344, 4, 2, 500, kQwen35Rope, "qwen3_5_text", "Qwen3_5ForCausalLM",
     R"(, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64)"},
    {"tiny-next", 4, 512, 344, 2, 1, 500, kQwen35Rope, "qwen3_next", "Qwen3NextForCausalLM",
     R"(, "head_dim": 256, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "num_experts": 8,
        "num_experts_per_tok": 2, "norm_topk_prob": true, "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128)"},
    {"qwen3.5-9b", 32, 4096, 12288, 16, 4, 248320, kQwen35Rope, "qwen3_5_text",
     "Qwen3_5ForCausalLM",
     R"(, "head_dim": 256, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128)"},
    {"tiny-gemma4", 4, 256, 344, 4, 2, 500, kGemma4Rope, "gemma4_text", "Gemma4ForCausalLM",
     R"(, "head_dim": 64, "global_head_dim": 128, "sliding_window": 90, "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
                        "full_attention"],
        "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 500)",
     kGemmaGate},
    {"tiny-gemma4-moe", 2, 256, 344, 4, 2, 500, kGemma4Rope, "gemma4_text", "Gemma4ForCausalLM",
     R"(, "head_dim": 64, "global_head_dim": 128, "sliding_window": 90, "attention_k_eq_v": true,
        "num_global_key_value_heads": 1, "enable_moe_block": true, "num_experts": 8,
        "layer_types": ["sliding_attention", "full_attention"], "top_k_experts": 2,
        "moe_intermediate_size": 128, "hidden_size_per_layer_input": 0)",
     kGemmaGate},
    {"gemma4-e2b", 35, 1536, 6144, 8, 1, 262144, kGemma4Rope, "gemma4_text", "Gemma4ForCausalLM",
     R"(, "sliding_window": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
        "layer_types": [
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "full_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "full_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "full_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "full_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "full_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "full_attention",
                        "sliding_attention", "sliding_attention",
                        "sliding_attention", "sliding_attention", "full_attention"],
        "final_logit_softcapping": 30.0)",
     kGemmaGate},
});

std::string config_of(std::string_view name) {
  for (const Shape& s : kShapes) {
    if (s.name != name) continue;
    return fmt::format(
        R"({{"model_type": "{}", "architectures": ["{}"], "hidden_act": "{}",
            "num_hidden_layers": {}, "hidden_size": {}, "intermediate_size": {},
            "num_attention_heads": {}, "num_key_value_heads": {}, "vocab_size": {},
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "bos_token_id": 1,
            "eos_token_id": 2, "tie_word_embeddings": false, "rope_parameters": {}{}}})",
        s.model_type, s.architecture, s.gate, s.layers, s.hidden, s.intermediate, s.heads,
        s.kv_heads, s.vocab, s.rope, s.others);
  }
  throw Error(ErrorCode::usage, std::string(name),
              "unknown shape, expected one of " + synthetic_shapes());
}

// This many values are drawn between two checks for a request to stop.
constexpr uint64_t kDrawn = uint64_t{1} << 20;

// Writes `count` values, each drawn from a table of 256.
template <typename T>
void draw(std::byte* out, uint64_t count, const std::array<T, 256>& table, Random& random) {
  uint64_t bits = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % kDrawn == 0) check_stop();
    if (i % 8 == 0) bits = random.next();
    std::memcpy(out + i * sizeof(T), &table[bits & 0xff], sizeof(T));
    bits >>= 8;
  }
}

constexpr uint64_t kPoolBytes = uint64_t{16} << 20;

// Returns random bytes that are drawn once. Tensors copy them from different places, so a model of
// 70 billion weights takes seconds instead of minutes.
const std::vector<uint64_t>& random_pool() {
  static const std::vector<uint64_t> pool = [] {
    Random random(7);
    std::vector<uint64_t> words(kPoolBytes / 8);
    for (uint64_t& word : words)
      word = random.next();
    return words;
  }();
  return pool;
}

void fill_random_bytes(std::byte* out, uint64_t count, Random& random) {
  const auto* pool = reinterpret_cast<const std::byte*>(random_pool().data());
  while (count > 0) {
    check_stop();
    const uint64_t offset = random.below(kPoolBytes / 2);
    const uint64_t n = std::min(count, kPoolBytes - offset);
    std::memcpy(out, pool + offset, n);
    out += n;
    count -= n;
  }
}

void fill_dense(std::byte* out, DType type, uint64_t count, double sigma, Random& random) {
  std::array<float, 256> values;
  for (float& v : values)
    v = static_cast<float>(sigma * random.normal());
  if (type == DType::f32) {
    draw(out, count, values, random);
    return;
  }
  std::array<uint16_t, 256> halves;
  for (size_t i = 0; i < values.size(); ++i)
    halves[i] = type == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
  draw(out, count, halves, random);
}

// Writes fp16 values between 0.75 and 1.25 times `center`.
void fill_halves(std::byte* out, uint64_t bytes, double center, Random& random) {
  std::array<uint16_t, 256> table;
  for (uint16_t& h : table)
    h = f32_to_f16(static_cast<float>(center * (0.75 + 0.5 * random.uniform())));
  draw(out, bytes / sizeof(uint16_t), table, random);
}

void fill_array(std::byte* out, const ArraySpec& spec, const Format& format, double sigma,
                Random& random) {
  const int pass = spec.suffix.ends_with('2') ? 1 : 0;
  const ScalarCode& code = format.code[pass];
  if (spec.suffix == "codebook") {
    std::memcpy(out, format.product.codebook, kCodebookBytes);
  } else if (spec.suffix.starts_with("codes")) {
    fill_random_bytes(out, spec.bytes, random);
    for (uint64_t i = 0; code.bits == 8 && i < spec.bytes; ++i)  // int8 codes are symmetric.
      if (out[i] == std::byte{0x80}) out[i] = std::byte{0};
  } else if (spec.suffix.starts_with("scales")) {
    const double rms = codec_of(format).level_rms(format, pass);
    fill_halves(out, spec.bytes, sigma / rms * (pass == 0 ? 1.0 : 0.1), random);
  } else if (spec.suffix.starts_with("sub_scales") || spec.suffix.starts_with("col_scales")) {
    fill_halves(out, spec.bytes, 1.0, random);
  }  // Offsets stay zero.
}

}  // namespace

std::string synthetic_shapes() {
  std::string known;
  for (const Shape& shape : kShapes)
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  return known;
}

SyntheticSource::SyntheticSource(std::string_view shape, const SyntheticTypes& types, uint32_t seed)
    : shape_(shape), config_json_(config_of(shape)), seed_(seed) {
  const ModelConfig config = parse_config(config_json_, path());
  const ModelPlan plan = make_plan(config);
  std::map<std::string, std::string> activations;  // Matrices of the layers read these.
  for (const Site& site : plan.sites)
    for (const std::string& name : site.matrices)
      activations[name] = site.name;
  size_t matrices = 0;  // It counts those in the layers.
  for (const TensorShape& tensor : model_tensors(config)) {
    const auto activation = activations.find(tensor.name);
    const Format* format = &dense_format(DType::f32);
    if (tensor.name == plan.embedding || tensor.name == plan.layer_embedding) {
      format = types.embed_type;
    } else if (tensor.name == plan.head) {
      format = types.head_type;
    } else if (activation != activations.end()) {
      const size_t turn = matrices++ % (types.others.size() + 1);
      format = turn == 0 ? types.type : types.others[turn - 1];
    }
    if (format == nullptr) throw Error(ErrorCode::usage, path(), "no type given for a tensor");
    tensors_[tensor.name] = {tensor, format,
                             activation != activations.end() ? activation->second : tensor.name,
                             seed + names_.size()};
    names_.push_back(tensor.name);
  }
}

std::vector<std::string> SyntheticSource::names() const {
  return names_;
}

const SyntheticSource::Entry& SyntheticSource::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error(ErrorCode::bad_input, path(), "no tensor " + name);
  return found->second;
}

const Format& SyntheticSource::format_of(const std::string& name) const {
  return *find(name).format;
}

StoredForm SyntheticSource::form_of(const std::string& name) const {
  const Entry& entry = find(name);
  StoredForm form{.format = entry.format};
  const Format& format = *entry.format;
  for (int pass = 0; pass < format.passes; ++pass) {
    Rotation& rotation = form.rotation[pass];
    rotation = {.kind = format.rotation_block > 0 ? RotationKind::hadamard : RotationKind::none};
    if (format.rotation_block > 0) rotation.block = format.rotation_block;
    rotation.seed = rotation_seed(seed_, entry.activation, pass);
  }
  return form;
}

Tensor SyntheticSource::load(const std::string& name) {
  const Entry& entry = find(name);
  const Format& format = *entry.format;
  const bool vector = entry.shape.rows == 1;
  const double sigma = vector ? 0 : 1 / std::sqrt(static_cast<double>(entry.shape.cols));
  Random random(entry.seed);

  Tensor tensor;
  tensor.format = &format;
  tensor.rows = entry.shape.rows;
  tensor.cols = entry.shape.cols;
  auto memory = std::make_shared<std::vector<AlignedArray<std::byte>>>();
  std::vector<std::span<const std::byte>> spans;
  for (const ArraySpec& spec : array_specs(format, tensor.rows, tensor.cols)) {
    AlignedArray<std::byte>& array = memory->emplace_back(spec.bytes);
    if (vector) {  // A vector is the gain of a norm.
      draw(
          array.data(), static_cast<uint64_t>(tensor.cols),
          []() {
            std::array<float, 256> ones;
            ones.fill(1.0f);
            return ones;
          }(),
          random);
    } else if (format.dense) {
      fill_dense(array.data(), format.dtype,
                 spec.bytes / static_cast<uint64_t>(dtype_size(format.dtype)), sigma, random);
    } else {
      fill_array(array.data(), spec, format, sigma, random);
    }
    spans.push_back({array.data(), array.size()});
  }
  bind_arrays(tensor, spans);
  tensor.owner = memory;
  const StoredForm form = form_of(name);
  std::copy_n(form.rotation, 2, tensor.rotation);
  return tensor;
}

}  // namespace walsh
