// Adds the entries that only one model family has in its config.json (the column `describe` of
// GgufFamily). The functions take a config with the entries that all architectures share, and throw
// bad_input naming the key that is missing or has a value that the family does not know.
#pragma once

#include "import/gguf_metadata.h"
#include "io/json.h"

namespace walsh {

using GgufDescribe = void(const GgufMetadata& metadata, Json& config);

GgufDescribe describe_gguf_arcee, describe_gguf_cohere2, describe_gguf_ernie45,
    describe_gguf_exaone4, describe_gguf_gemma, describe_gguf_gemma2, describe_gguf_gemma3,
    describe_gguf_glm4, describe_gguf_granite, describe_gguf_hunyuan, describe_gguf_llama,
    describe_gguf_mistral3, describe_gguf_olmo2, describe_gguf_olmo3, describe_gguf_phi3,
    describe_gguf_qwen2, describe_gguf_qwen3, describe_gguf_seed_oss, describe_gguf_smollm3;
// These families have experts.
GgufDescribe describe_gguf_deepseek2, describe_gguf_deepseek3, describe_gguf_ernie45_moe,
    describe_gguf_glm4_moe, describe_gguf_gpt_oss, describe_gguf_granite_moe, describe_gguf_llama4,
    describe_gguf_minimax_m2, describe_gguf_mixtral, describe_gguf_olmoe, describe_gguf_qwen2_moe,
    describe_gguf_qwen3_moe;
// This one comes with and without experts; its layers differ in their heads and widths.
GgufDescribe describe_gguf_gemma4;
// These have delta nets.
GgufDescribe describe_gguf_qwen35, describe_gguf_qwen35_moe, describe_gguf_qwen3_next;
// This one has Mamba-2 mixers.
GgufDescribe describe_gguf_granite_hybrid;
// These have short convolutions.
GgufDescribe describe_gguf_lfm2, describe_gguf_lfm2_moe;

// Returns "sliding_attention" or "full_attention" for each layer.
// `.attention.sliding_window_pattern` lists them, or all but the last of every `pattern` layers
// have a window. `pattern` is the default where the file gives no number.
Json gguf_layer_types(const GgufMetadata& metadata, int64_t pattern);
// Returns whether the model has a sliding window.
bool has_gguf_window(const GgufMetadata& metadata);
// Returns whether a layer has a tensor of this name (with ".weight" or ".bias").
bool in_gguf_layer(const GgufMetadata& metadata, int64_t layer, std::string_view name);
// Returns whether a layer's queries have a bias, on their own or together with keys and values.
bool has_gguf_attention_bias(const GgufMetadata& metadata, int64_t layer);
void copy_gguf_number(const GgufMetadata& metadata, std::string_view key, const char* name,
                      Json& config);

}  // namespace walsh
