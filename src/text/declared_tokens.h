// Reads tokens that tokenizer_config.json adds to those of tokenizer.json.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// Returns the entries of tokenizer.json's "added_tokens", followed by those that the configuration
// declares (added_tokens_decoder, the tokens with a role, additional_special_tokens,
// extra_special_tokens), as the fast tokenizers of transformers 5 add them; what transformers 5
// refuses is read as transformers 4 reads it. Declaring an existing token changes its flags. New
// entries have no id: their position determines it, whatever the configuration states. Throws
// bad_input naming `where` for a malformed declaration. `own` is not checked.
Json with_declared_tokens(const Json& own, const OrderedJson& config, const std::string& where);

}  // namespace walsh
