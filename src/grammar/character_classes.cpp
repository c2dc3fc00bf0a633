#include "grammar/character_classes.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/regex.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh::grammar {
namespace {

constexpr size_t kMostNames = 512;       // this many names are remembered
constexpr char32_t kPiece = 0x8000;      // this many characters are looked at together
constexpr uint64_t kSteps = 10'000'000;  // one such look may take this many steps

// PCRE2 knows general categories by their short names only.
std::string short_name(std::string_view name) {
  using Pair = std::pair<std::string_view, std::string_view>;
  static constexpr auto kLong = std::to_array<Pair>({{"Letter", "L"},
                                                     {"Uppercase_Letter", "Lu"},
                                                     {"Lowercase_Letter", "Ll"},
                                                     {"Titlecase_Letter", "Lt"},
                                                     {"Cased_Letter", "L&"},
                                                     {"LC", "L&"},
                                                     {"Modifier_Letter", "Lm"},
                                                     {"Other_Letter", "Lo"},
                                                     {"Mark", "M"},
                                                     {"Combining_Mark", "M"},
                                                     {"Nonspacing_Mark", "Mn"},
                                                     {"Spacing_Mark", "Mc"},
                                                     {"Enclosing_Mark", "Me"},
                                                     {"Number", "N"},
                                                     {"Decimal_Number", "Nd"},
                                                     {"digit", "Nd"},
                                                     {"Letter_Number", "Nl"},
                                                     {"Other_Number", "No"},
                                                     {"Punctuation", "P"},
                                                     {"punct", "P"},
                                                     {"Connector_Punctuation", "Pc"},
                                                     {"Dash_Punctuation", "Pd"},
                                                     {"Open_Punctuation", "Ps"},
                                                     {"Close_Punctuation", "Pe"},
                                                     {"Initial_Punctuation", "Pi"},
                                                     {"Final_Punctuation", "Pf"},
                                                     {"Other_Punctuation", "Po"},
                                                     {"Symbol", "S"},
                                                     {"Math_Symbol", "Sm"},
                                                     {"Currency_Symbol", "Sc"},
                                                     {"Modifier_Symbol", "Sk"},
                                                     {"Other_Symbol", "So"},
                                                     {"Separator", "Z"},
                                                     {"Space_Separator", "Zs"},
                                                     {"Line_Separator", "Zl"},
                                                     {"Paragraph_Separator", "Zp"},
                                                     {"Other", "C"},
                                                     {"Control", "Cc"},
                                                     {"cntrl", "Cc"},
                                                     {"Format", "Cf"},
                                                     {"Surrogate", "Cs"},
                                                     {"Private_Use", "Co"},
                                                     {"Unassigned", "Cn"}});
  for (const auto& [from, to] : kLong)
    if (name == from) return std::string(to);
  return std::string(name);
}

// Returns the name as PCRE2 writes it, or an empty one if it cannot be a name.
std::string translated(std::string_view name) {
  const size_t mark = name.find('=');
  const std::string_view value = mark == name.npos ? name : name.substr(mark + 1);
  const std::string_view key = mark == name.npos ? "" : name.substr(0, mark);
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
  if (!plain) return {};
  if (key.empty() || key == "General_Category" || key == "gc") return short_name(value);
  if (key == "Script" || key == "sc") return "sc:" + std::string(value);
  if (key == "Script_Extensions" || key == "scx") return "scx:" + std::string(value);
  return {};
}

CodeSet characters_that_match(const std::string& property) {
  const Regex regex = Regex::for_text("\\p{" + property + "}+", "pattern");
  CodeSet set;
  std::vector<Span> spans;
  for (char32_t first = 0; first < 0x110000; first += kPiece) {
    std::string text;
    for (char32_t code = first; code < first + kPiece; ++code)
      if (code < 0xD800 || code > 0xDFFF) append_utf8(code, text);
    StepBudget budget(kSteps);
    regex.find_all(text, budget, spans);
    for (const Span& span : spans) {
      size_t last = span.end - 1;
      while ((static_cast<unsigned char>(text[last]) & 0xC0) == 0x80)
        --last;
      set.push_back({decode_utf8(std::string_view(text).substr(span.begin)).code,
                     decode_utf8(std::string_view(text).substr(last)).code});
    }
  }
  return normal_set(std::move(set));
}

}  // namespace

std::optional<CodeSet> characters_of(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::optional<CodeSet>, std::less<>> known;
  const std::string property = translated(name);
  if (property.empty()) return std::nullopt;
  if (property == "ASCII") return CodeSet{{0, 0x7F}};
  if (property == "Assigned") return complement(*characters_of("Cn"));
  const std::lock_guard lock(mutex);
  if (const auto place = known.find(property); place != known.end()) return place->second;
  std::optional<CodeSet> set;
  try {
    set = characters_that_match(property);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::bad_input) throw;
  }
  if (known.size() >= kMostNames) known.clear();
  return known[property] = std::move(set);
}

}  // namespace walsh::grammar
