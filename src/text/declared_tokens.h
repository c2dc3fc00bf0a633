// Tokens that tokenizer_config.json adds to those of tokenizer.json.
#pragma once

#include <string>

#include "io/json.h"

namespace walsh {

// The entries of tokenizer.json's "added_tokens" and behind them those that the configuration
// declares (added_tokens_decoder, the tokens with a role, additional_special_tokens,
// extra_special_tokens), as the fast tokenizers of transformers 5 add them; what transformers 5
// refuses is read as transformers 4 reads it. A declaration of a token that is there changes its
// flags. New ones have no id: their place gives it, whatever the configuration states.
// Throws bad_input naming `where` for a malformed declaration. `own` is not checked.
Json with_declared_tokens(const Json& own, const OrderedJson& config, const std::string& where);

}  // namespace walsh
