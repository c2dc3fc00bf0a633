// Reads tokens from the separate files that older checkpoints have beside tokenizer.json.
#pragma once

#include <string>

namespace walsh {

struct LegacyTokenFiles {
  // These are texts; an empty one means that there is no such file.
  std::string special_tokens_map, added_tokens;
};

// Returns the text of tokenizer_config.json (may be empty) with the tokens of these files added as
// transformers does it; a configuration with an added_tokens_decoder is left alone. `tokenizer` is
// the text of tokenizer.json. Throws bad_input naming `folder` and the file for anything malformed.
std::string with_legacy_tokens(const std::string& config, const std::string& tokenizer,
                               const LegacyTokenFiles& files, const std::string& folder);

}  // namespace walsh
