// Writes a Llama checkpoint as llama.cpp's converter does, with its names, its order of rows in q
// and k, its metadata and the tokenizer. (gguf_recipe.h writes other families.)
#pragma once

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/half.h"
#include "io/checkpoint.h"
#include "io/gguf_writer.h"

namespace walsh::test {

using GgufJson = nlohmann::json;

inline std::string gguf_name(std::string name) {
  const std::vector<std::pair<std::string, std::string>> renamed = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"model.layers.", "blk."},
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.", "attn_"},
      {"mlp.", "ffn_"},
      {"_proj", ""}};
  for (const auto& [from, to] : renamed)
    if (const size_t place = name.find(from); place != std::string::npos)
      name.replace(place, from.size(), to);
  return name;
}

// Puts rows i and i + n/2 of every head next to each other.
inline std::vector<std::byte> paired_rows(std::span<const std::byte> data, int64_t rows,
                                          int64_t heads) {
  const size_t row = data.size() / static_cast<size_t>(rows);
  const int64_t head = rows / heads;
  std::vector<std::byte> result(data.size());
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t in_head = r % head;
    const int64_t to = r - in_head + in_head % (head / 2) * 2 + in_head / (head / 2);
    std::memcpy(&result[static_cast<size_t>(to) * row], &data[static_cast<size_t>(r) * row], row);
  }
  return result;
}

// Quantizes bf16 weights in blocks of 32 as ggml's reference does.
inline std::vector<std::byte> quantize_blocks(std::span<const std::byte> bf16, GgmlType type) {
  std::vector<std::byte> out;
  const auto put = [&](const void* data, size_t size) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out.insert(out.end(), bytes, bytes + size);
  };
  for (size_t block = 0; block < bf16.size(); block += 64) {
    float x[32], largest = 0;
    for (size_t i = 0; i < 32; ++i) {
      uint16_t bits = 0;
      std::memcpy(&bits, &bf16[block + 2 * i], 2);
      x[i] = bf16_to_f32(bits);
      if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
    }
    const bool is_q8 = type == GgmlType::q8_0;
    const float scale = is_q8 ? std::fabs(largest) / 127 : largest / -8;
    const float inverse = scale == 0 ? 0 : 1 / scale;
    const uint16_t half = f32_to_f16(scale);
    put(&half, 2);
    for (size_t i = 0; i < (is_q8 ? 32 : 16); ++i) {
      const auto nibble = [&](float v) {
        return static_cast<uint8_t>(std::min(15.0f, v * inverse + 8.5f));
      };
      const auto byte = is_q8
                            ? static_cast<uint8_t>(static_cast<int8_t>(std::round(x[i] * inverse)))
                            : static_cast<uint8_t>(nibble(x[i]) | nibble(x[i + 16]) << 4);
      put(&byte, 1);
    }
  }
  return out;
}

inline void set_tokenizer(const Checkpoint& checkpoint, GgufWriter& writer, int64_t rows) {
  const GgufJson json = GgufJson::parse(checkpoint.tokenizer_json());
  std::vector<std::string> tokens(static_cast<size_t>(rows)), merges;
  std::vector<int32_t> types(tokens.size(), 5);  // unused
  for (size_t id = 0; id < tokens.size(); ++id)
    tokens[id] = "[PAD" + std::to_string(id) + "]";
  for (const auto& [text, id] : json["model"]["vocab"].items()) {
    tokens[id] = text;
    types[id] = 1;
  }
  for (const GgufJson& added : json["added_tokens"]) {
    tokens[added["id"]] = added["content"];
    types[added["id"]] = 3;  // control
  }
  for (const GgufJson& merge : json["model"]["merges"])
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  writer.set("tokenizer.ggml.model", GgufValue::text("gpt2"));
  writer.set("tokenizer.ggml.pre", GgufValue::text("llama-bpe"));
  writer.set("tokenizer.ggml.tokens", GgufValue::texts(tokens));
  writer.set("tokenizer.ggml.token_type", GgufValue::numbers(types));
  writer.set("tokenizer.ggml.merges", GgufValue::texts(merges));
  const GgufJson config = GgufJson::parse(checkpoint.config_json());
  for (const char* key : {"bos_token_id", "eos_token_id"})
    writer.set(std::string("tokenizer.ggml.") + key, GgufValue::number<uint32_t>(config[key]));
}

// `type` is that of the matrices of the layers: bf16, q8_0 or q4_0.
inline void write_gguf_model(const std::string& folder, const std::string& path, GgmlType type,
                             const std::string& chat_template = "") {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const GgufJson c = GgufJson::parse(checkpoint.config_json());
  GgufWriter writer(32);
  writer.set("general.architecture", GgufValue::text("llama"));
  const auto number = [&](const char* key, uint32_t value) {
    writer.set(key, GgufValue::number<uint32_t>(value));
  };
  number("llama.block_count", c["num_hidden_layers"]);
  number("llama.context_length", c["max_position_embeddings"]);
  number("llama.embedding_length", c["hidden_size"]);
  number("llama.feed_forward_length", c["intermediate_size"]);
  number("llama.attention.head_count", c["num_attention_heads"]);
  number("llama.attention.head_count_kv", c["num_key_value_heads"]);
  number("llama.attention.key_length", c["head_dim"]);
  number("llama.rope.dimension_count", c["head_dim"]);
  writer.set("llama.attention.layer_norm_rms_epsilon", GgufValue::number<float>(c["rms_norm_eps"]));
  writer.set("llama.rope.freq_base", GgufValue::number<float>(c["rope_parameters"]["rope_theta"]));
  set_tokenizer(checkpoint, writer, c["vocab_size"]);
  if (!chat_template.empty()) writer.set("tokenizer.chat_template", GgufValue::text(chat_template));
  std::map<std::string, std::vector<std::byte>> stored;
  for (const TensorInfo& info : checkpoint.tensors()) {
    const auto data = checkpoint.data(info);
    auto& bytes = stored[gguf_name(info.name)];
    bytes.assign(data.begin(), data.end());
    for (const auto& [part, heads] :
         {std::pair("q_proj", "num_attention_heads"), std::pair("k_proj", "num_key_value_heads")}) {
      if (info.name.find(part) != std::string::npos)
        bytes = paired_rows(data, info.shape[0], c[heads]);
    }
    const bool coded = type != GgmlType::bf16 && info.name.find("_proj") != std::string::npos;
    if (coded) bytes = quantize_blocks(bytes, type);
    writer.add_tensor(gguf_name(info.name), coded ? type : GgmlType::bf16,
                      {info.shape.rbegin(), info.shape.rend()});
  }
  writer.open(path);
  for (const auto& [name, bytes] : stored)
    writer.write(name, bytes);
  writer.commit();
}

}  // namespace walsh::test
