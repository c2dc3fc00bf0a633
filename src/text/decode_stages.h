// Makes the stages of a decoder. Each function makes a new one, because stages have state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/decoder.h"
#include "text/metaspace.h"
#include "text/pattern.h"

namespace walsh::detail {

// Turns byte-level tokens into bytes, which are joined to one token. Ill-formed UTF-8 is replaced.
std::unique_ptr<DecodeStage> byte_level_stage();

// Returns the byte that a token of the form <0xNN> stands for.
std::optional<uint8_t> byte_of_token(std::string_view token);

// Turns a run of <0xNN> tokens into its text, or each of them into U+FFFD if that is not valid
// UTF-8. The run is held back until it ends, because its last byte decides.
std::unique_ptr<DecodeStage> byte_fallback_stage();

// Joins all tokens to one.
std::unique_ptr<DecodeStage> fuse_stage();

// Replaces every match in a token.
std::unique_ptr<DecodeStage> replace_stage(const Pattern& pattern, std::string content);

// Removes `character` up to `start` times at the start of each token, and up to `stop` times at its
// end.
std::unique_ptr<DecodeStage> strip_stage(char32_t character, size_t start, size_t stop);

// Turns marks into spaces. Those of the first token are dropped unless the scheme is `never`.
std::unique_ptr<DecodeStage> metaspace_stage(Metaspace settings);

// Puts a space between tokens.
std::unique_ptr<DecodeStage> join_stage();

}  // namespace walsh::detail
