#include "serve/fill_prompt.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace walsh {
namespace {

// Says how one line of models spells the marks.
struct Spelling {
  const char *prefix, *suffix, *middle;  // an empty one means that it has no token for the middle
};

constexpr std::array<Spelling, 9> kSpellings = {{
    // Qwen2.5-Coder and CodeGemma have these.
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},  // StarCoder and Granite have these
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},  // SantaCoder has these
    {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
     "<\uff5cfim\u2581end\uff5c>"},                 // DeepSeek has these
    {"\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"},  // CodeLlama has these
    // Some converters write CodeLlama's marks like this.
    {"<PRE>", "<SUF>", "<MID>"},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM-4.5 has these
    {"<|prefix|>", "<|suffix|>", "<|middle|>"},                 // Falcon has these
    {"[PREFIX]", "[SUFFIX]", ""},                               // Codestral has these
}};

constexpr std::array kRepositories = {"<|repo_name|>", "<|fim_repo|>", "<repo_name>", "<fim-repo>",
                                      "<reponame>"};
constexpr std::array kFiles = {"<|file_sep|>", "<file_sep>"};
constexpr std::array kEnds = {"<|fim_pad|>", "<fim_pad>", "<fim-pad>",
                              "\u2581<EOT>", "<EOT>",     "<|file_separator|>"};

template <typename Names>
std::optional<int32_t> first_token(const Tokenizer& tokenizer, const Names& names) {
  for (const char* name : names)
    if (const auto id = tokenizer.token_id(name)) return id;
  return std::nullopt;
}

void append(std::vector<int32_t>& to, const std::vector<int32_t>& tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

// Returns the tokens of a file. If a model has no mark for files, it is shown a line as llama.cpp
// writes it.
std::vector<int32_t> file_tokens(const Tokenizer& tokenizer, const FillTokens& marks,
                                 const std::string& name, const std::string& text) {
  if (!marks.file) return tokenizer.encode("\n\n--- snippet ---\n\n" + text, false);
  std::vector<int32_t> tokens = {*marks.file};
  append(tokens, tokenizer.encode(name + "\n" + text, false));
  return tokens;
}

// Returns the tokens before the prefix, with as many of the last files as have room.
std::vector<int32_t> files_before(const Tokenizer& tokenizer, const FillTokens& marks,
                                  const FillRequest& request, int64_t room) {
  std::vector<int32_t> begin, end;
  if (marks.repository) {
    begin = {*marks.repository};
    append(begin, tokenizer.encode("myproject\n", false));
  }
  if (marks.file) end = file_tokens(tokenizer, marks, "filename", "");
  room -= std::ssize(begin) + std::ssize(end);
  std::vector<std::vector<int32_t>> kept;
  for (auto file = request.files.rbegin(); file != request.files.rend(); ++file) {
    std::vector<int32_t> tokens = file_tokens(tokenizer, marks, file->name, file->text);
    room -= std::ssize(tokens);
    if (room < 0) break;
    kept.push_back(std::move(tokens));
  }
  if (kept.empty()) return {};
  for (auto file = kept.rbegin(); file != kept.rend(); ++file)
    append(begin, *file);
  append(begin, end);
  return begin;
}

// Shortens the prefix at its beginning and the suffix at its end to `most` tokens together.
void shorten(std::vector<int32_t>& prefix, std::vector<int32_t>& suffix, int64_t most) {
  const int64_t for_suffix = std::max(most / 4, most - std::ssize(prefix));
  suffix.resize(static_cast<size_t>(std::min(std::ssize(suffix), for_suffix)));
  const int64_t excess = std::ssize(prefix) - (most - std::ssize(suffix));
  if (excess > 0) prefix.erase(prefix.begin(), prefix.begin() + excess);
}

}  // namespace

std::optional<FillTokens> fill_tokens(const Tokenizer& tokenizer) {
  FillTokens tokens;
  for (const Spelling& names : kSpellings) {
    const auto prefix = tokenizer.token_id(names.prefix), suffix = tokenizer.token_id(names.suffix);
    tokens.middle = tokenizer.token_id(names.middle);
    if (!prefix || !suffix || (*names.middle != '\0' && !tokens.middle)) continue;
    if (*names.middle == '\0') tokens.middle = std::nullopt;
    tokens.prefix = *prefix;
    tokens.suffix = *suffix;
    tokens.repository = first_token(tokenizer, kRepositories);
    tokens.file = first_token(tokenizer, kFiles);
    for (const char* name : kEnds)
      if (const auto id = tokenizer.token_id(name)) tokens.ends.push_back(*id);
    for (const auto& id : {tokens.repository, tokens.file})
      if (id) tokens.ends.push_back(*id);
    return tokens;
  }
  return std::nullopt;
}

std::vector<int32_t> fill_prompt(const Tokenizer& tokenizer, const FillTokens& tokens,
                                 const FillRequest& request, int64_t most) {
  constexpr int64_t kMarks = 4;  // The three parts and the beginning have a mark each.
  std::vector<int32_t> prefix = tokenizer.encode(request.prefix, false);
  std::vector<int32_t> suffix = tokenizer.encode(request.suffix, false);
  shorten(prefix, suffix, std::max<int64_t>(0, most - kMarks));
  std::vector<int32_t> prompt;
  if (const auto bos = tokenizer.added_bos()) prompt.push_back(*bos);
  const int64_t room = most - kMarks - std::ssize(prefix) - std::ssize(suffix);
  append(prompt, files_before(tokenizer, tokens, request, room));
  prefix.insert(prefix.begin(), tokens.prefix);
  suffix.insert(suffix.begin(), tokens.suffix);
  append(prompt, tokens.middle ? prefix : suffix);
  append(prompt, tokens.middle ? suffix : prefix);
  if (tokens.middle) prompt.push_back(*tokens.middle);
  return prompt;
}

}  // namespace walsh
