// Tokens that stand in files of their own beside a tokenizer.json, as older checkpoints have them.
#pragma once

#include <string>

namespace walsh {

struct LegacyTokenFiles {
  std::string special_tokens_map, added_tokens;  // texts; empty: no such file
};

// The text of tokenizer_config.json (may be empty) with what the files add, as transformers reads
// them: not at all where the configuration has an added_tokens_decoder. `tokenizer` is the text of
// tokenizer.json. Throws bad_input naming `folder` and the file for anything malformed.
std::string with_legacy_tokens(const std::string& config, const std::string& tokenizer,
                               const LegacyTokenFiles& files, const std::string& folder);

}  // namespace walsh
