// Makes prompts that ask models of code for the text between two others ("fill in the middle",
// Bavarian et al., 2022).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace walsh {

// These tokens mark the parts of such a prompt. Codestral's puts the suffix first and has no token
// for the middle.
struct FillTokens {
  int32_t prefix = 0, suffix = 0;
  std::optional<int32_t> middle;
  // They stand before the name of a repository and before that of a file, if the model knows them.
  std::optional<int32_t> repository, file;
  std::vector<int32_t> ends;  // the model may end the middle with any of them
};

// Returns the tokens that the tokenizer has, or nothing if it has none for such prompts.
std::optional<FillTokens> fill_tokens(const Tokenizer& tokenizer);

struct FillRequest {
  struct File {
    std::string name, text;
  };
  std::string prefix, suffix;
  std::vector<File> files;  // the model should know these, too
};

// Returns the prompt. If it would have more than `most` tokens, files are left out, the first ones
// first, and then the beginning of the prefix and the end of the suffix, which has a quarter of the
// room, or more where the prefix is short.
std::vector<int32_t> fill_prompt(const Tokenizer& tokenizer, const FillTokens& tokens,
                                 const FillRequest& request, int64_t most);

}  // namespace walsh
