// The description of one decoder forward pass, read from a Hugging Face config.json. Every family
// is brought to this one form; the forward pass knows no families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace walsh {

enum class RopeKind : uint8_t { standard, linear, llama3 };

// Rotary position embedding; frequencies as in transformers' modeling_rope_utils.
struct RopeConfig {
  RopeKind kind = RopeKind::standard;
  double theta = 10000;
  double factor = 1;           // linear, llama3
  double low_freq_factor = 1;  // llama3 and below
  double high_freq_factor = 4;
  int64_t original_max_positions = 0;

  bool operator==(const RopeConfig&) const = default;
};

// A pre-norm decoder: x += o(attention(norm(x))); x += down(silu(gate(norm(x))) * up(norm(x))).
struct ModelConfig {
  std::string family;  // "llama", "mistral", "qwen2", "qwen3"
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // a multiple of 8; heads * head_dim need not be hidden
  int64_t vocab = 0;
  int64_t max_positions = 0;
  float norm_eps = 0;
  bool qk_norm = false;  // RMSNorm over head_dim of every query and key head
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool tied_head = false;
  RopeConfig rope;
  std::vector<int64_t> windows;   // per layer: positions that a query sees, 0 for all
  std::vector<int32_t> bos, eos;  // as they stand there: may lie outside the vocabulary

  int64_t query_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
};

// Reads config.json. Throws bad_input naming `where` and the key when a key is missing, out of
// range, unknown (it might change the function) or asks for something not supported.
ModelConfig parse_config(std::string_view json, std::string_view where);

}  // namespace walsh
