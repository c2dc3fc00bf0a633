// Names the files that a Hugging Face folder may consist of, apart from its shards.
#pragma once

#include <array>
#include <string_view>

namespace walsh::checkpoint_files {

inline constexpr const char *kConfig = "config.json", *kGenerationConfig = "generation_config.json",
                            *kTokenizer = "tokenizer.json",
                            *kTokenizerConfig = "tokenizer_config.json",
                            *kSpecialTokens = "special_tokens_map.json",
                            *kAddedTokens = "added_tokens.json",
                            *kChatTemplate = "chat_template.jinja", *kSingle = "model.safetensors",
                            *kIndex = "model.safetensors.index.json";

// A reader looks for each of them, so that a file which is given one of these names becomes a part
// of the checkpoint.
inline constexpr std::array<std::string_view, 9> kAll = {
    kConfig,       kGenerationConfig, kTokenizer, kTokenizerConfig, kSpecialTokens, kAddedTokens,
    kChatTemplate, kSingle,           kIndex};

}  // namespace walsh::checkpoint_files
