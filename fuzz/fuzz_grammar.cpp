// Takes arbitrary bytes as a GBNF grammar or, if the first byte is '{', as a JSON schema. It must
// be refused with one error that names its place, or texts must be able to follow it within its
// limits.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "grammar/gbnf.h"
#include "grammar/json_schema.h"
#include "grammar/token_grammar.h"
#include "walsh/error.h"

namespace {

constexpr size_t kMaxInput = 4096;

const std::shared_ptr<const walsh::grammar::TokenVocabulary>& vocabulary() {
  static const auto made = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte)
      texts.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"true", "\": ", "ab", "\xC3\xA9t", "}]", "12"})
      texts.emplace_back(text);
    return std::make_shared<const walsh::grammar::TokenVocabulary>(std::move(texts));
  }();
  return made;
}

// Continues with the lowest, the middle and the highest allowed token in turn.
void follow(walsh::grammar::Graph graph) {
  const auto compiled =
      std::make_shared<walsh::grammar::TokenGrammar>(std::move(graph), vocabulary(), "fuzz");
  walsh::grammar::TokenMatcher matcher(compiled);
  for (int i = 0; i < 12 && matcher.can_continue(); ++i) {
    const auto allowed = matcher.allowed();
    std::vector<int32_t> choice;
    for (size_t id = 0; id < vocabulary()->size(); ++id)
      if (allowed->has(static_cast<int32_t>(id))) choice.push_back(static_cast<int32_t>(id));
    // Every byte is a token, so a text that can continue has a token for it.
    if (choice.empty()) std::abort();
    const size_t place[] = {0, choice.size() / 2, choice.size() - 1};
    if (!matcher.accept(choice[place[i % 3]])) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > kMaxInput) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    walsh::grammar::GraphBuilder builder("fuzz");
    const auto root = text.starts_with('{')
                          ? add_json_schema(builder, walsh::parse_ordered_json(text, "fuzz"))
                          : walsh::grammar::add_gbnf(builder, text);
    follow(builder.finish(root));
  } catch (const walsh::Error& error) {
    if (error.code() != walsh::ErrorCode::bad_input && error.code() != walsh::ErrorCode::limit)
      std::abort();
    if (!error.where().starts_with("fuzz")) std::abort();
  }
  return 0;
}
