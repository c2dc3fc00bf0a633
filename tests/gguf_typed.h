// Writes GGUF files with matrices of any ggml type.
#pragma once

#include <string>
#include <vector>

#include "import/ggml_blocks.h"
#include "io/gguf_writer.h"

namespace walsh::test {

// Returns the ids of all types that hold weights.
inline std::vector<uint32_t> weight_types() {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id < 64; ++id)
    if (can_decode_ggml(id)) ids.push_back(id);
  return ids;
}

// Writes a Llama of one layer without a tokenizer; the values of its matrices are zero.
inline void write_typed_gguf(const std::string& path, uint32_t type) {
  constexpr uint64_t kWidth = 256;
  GgufWriter writer(32);
  writer.set("general.architecture", GgufValue::text("llama"));
  const auto number = [&](const std::string& key, uint32_t value) {
    writer.set("llama." + key, GgufValue::number<uint32_t>(value));
  };
  number("block_count", 1);
  number("context_length", 64);
  number("embedding_length", kWidth);
  number("feed_forward_length", kWidth);
  number("attention.head_count", 4);
  writer.set("llama.attention.layer_norm_rms_epsilon", GgufValue::number(1e-5f));
  std::vector<std::pair<std::string, uint64_t>> sizes;
  const auto add = [&](const std::string& name, uint32_t id, std::vector<uint64_t> dims) {
    sizes.emplace_back(name, gguf_tensor_bytes(id, dims, name));
    writer.add_tensor(name, static_cast<GgmlType>(id), std::move(dims));
  };
  const auto vector = static_cast<uint32_t>(GgmlType::f32);
  add("token_embd.weight", type, {kWidth, 8});
  add("output_norm.weight", vector, {kWidth});
  add("blk.0.attn_norm.weight", vector, {kWidth});
  add("blk.0.ffn_norm.weight", vector, {kWidth});
  for (const char* name :
       {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
    add("blk.0." + std::string(name) + ".weight", type, {kWidth, kWidth});
  writer.open(path);
  for (const auto& [name, bytes] : sizes)
    writer.write(name, std::vector<std::byte>(bytes));
  writer.commit();
}

}  // namespace walsh::test
