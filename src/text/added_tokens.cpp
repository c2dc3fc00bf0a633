#include "text/added_tokens.h"

#include <algorithm>

#include "io/printable.h"
#include "text/component.h"
#include "text/regex_translate.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace walsh {
namespace {

constexpr const char* kPlace = "added tokens";  // errors name this place
constexpr size_t kMaxLiteralBytes = 4096;
// Each added token adds this many bytes to their common budget.
constexpr uint64_t kNormalizedBytes = 64;

// Returns Rust's \w as a pattern.
std::string word_character() {
  return "[" + word_class() + "\\x{200C}\\x{200D}]";
}

// Returns where the character that ends at `end` (> 0) begins.
size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

// Returns where the white space that ends at `end` begins. It stops at `limit`, where a character
// begins.
size_t skip_whitespace_back(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t begin = previous_character(text, end);
    if (!is_whitespace(decode_utf8(text.substr(begin, end - begin)).code)) {
      break;
    }
    end = begin;
  }
  return end;
}

size_t skip_whitespace(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Unit unit = decode_utf8(text.substr(begin));
    if (!is_whitespace(unit.code)) {
      break;
    }
    begin += unit.size;
  }
  return begin;
}

}  // namespace

void LiteralSet::add(std::string_view literal, int32_t value, std::string_view where) {
  if (literal.empty() || literal.size() > kMaxLiteralBytes) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "a text of " + std::to_string(literal.size()) + " bytes to search, expected 1 to " +
                    std::to_string(kMaxLiteralBytes));
  }
  first_[static_cast<uint8_t>(literal[0])] = true;
  uint32_t node = 0;
  for (const char c : literal) {
    const auto [place, inserted] =
        edges_.emplace(edge(node, c), static_cast<uint32_t>(nodes_.size()));
    if (inserted) {
      nodes_.emplace_back();
    }
    node = place->second;
  }
  if (nodes_[node].value >= 0) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "\"" + printable(literal, 48) + "\" is the form of two added tokens");
  }
  nodes_[node].value = value;
}

std::optional<LiteralSet::Match> LiteralSet::match(std::string_view text, size_t& visited) const {
  std::optional<Match> best;
  visited = 1;
  if (text.empty() || !first_[static_cast<uint8_t>(text[0])]) {
    return best;
  }
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto place = edges_.find(edge(node, text[i]));
    if (place == edges_.end()) {
      break;
    }
    ++visited;
    node = place->second;
    if (nodes_[node].value >= 0) {
      best = Match{i + 1, nodes_[node].value};
    }
  }
  return best;
}

AddedTokens::AddedTokens(const Json& value, const Normalizer& normalizer, Vocabulary& vocabulary,
                         std::string_view where, size_t declared, bool split_special)
    : word_start_(Regex::for_text("\\A" + word_character(), where)),
      word_end_(Regex::for_text(word_character() + "\\z", where)),
      split_special_(split_special) {
  if (value.is_null()) {
    return;
  }
  if (!value.is_array()) {
    throw Error(ErrorCode::bad_input, std::string(where),
                describe_json(value) + " where an array is expected");
  }
  // The library numbers new tokens from the size of the model's vocabulary, whatever ids the file
  // states; add() refuses files in which the two differ.
  next_id_ = vocabulary.count();
  StepBudget steps = StepBudget::for_text(kNormalizedBytes * value.size());
  size_t index = 0;
  for (const Json& entry : value) {
    const std::string entry_where = std::string(where) + "[" + std::to_string(index) + "]";
    add(entry, index++ < declared, normalizer, vocabulary, steps, entry_where);
  }
}

void AddedTokens::add(const Json& entry, bool states_id, const Normalizer& normalizer,
                      Vocabulary& vocabulary, StepBudget& steps, std::string_view where) {
  const std::string content = get_string(entry, "content", where);
  check_keys(entry, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"},
             where);
  const auto known = vocabulary.find(content);
  const int32_t id = known ? *known : next_id_;
  const int64_t stated = states_id ? get_int(entry, "id", where, 0, INT32_MAX - 1) : id;
  if (stated != id) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "token \"" + printable(content, 48) + "\" has the id " + std::to_string(stated) +
                    ", but its place gives " + std::to_string(id));
  }
  if (!known) {
    vocabulary.extend(content, id, where);
    ++next_id_;
  }
  const bool normalized = get_bool(entry, "normalized", where);
  Rule rule{get_bool(entry, "single_word", where), get_bool(entry, "lstrip", where),
            get_bool(entry, "rstrip", where),
            normalized ? normalizer.apply(content, steps) : content};
  (normalized ? normalized_ : raw_).add(rule.decoded, id, where);
  if (!rules_.emplace(id, std::move(rule)).second) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "token \"" + printable(content, 48) + "\" is added twice");
  }
  if (get_bool(entry, "special", where)) {
    special_.insert(id);
  }
}

const std::string* AddedTokens::decoded_form(int32_t id) const {
  const auto place = rules_.find(id);
  return place == rules_.end() ? nullptr : &place->second.decoded;
}

// Returns whether neither neighbour of the match is a word character.
bool AddedTokens::stands_alone(std::string_view text, Span span, StepBudget& steps) const {
  if (span.begin > 0) {
    const size_t before = previous_character(text, span.begin);
    if (word_end_.matches(text.substr(before, span.begin - before), steps)) {
      return false;
    }
  }
  if (span.end == text.size()) {
    return true;
  }
  const std::string_view rest = text.substr(span.end);
  return !word_start_.matches(rest.substr(0, decode_utf8(rest).size), steps);
}

// Splits as the tokenizers library does, also where the stripped white space of one token contains
// another. The search continues after the token itself, so segments may overlap.
std::vector<AddedSegment> AddedTokens::split(const LiteralSet& literals, std::string_view text,
                                             StepBudget& steps) const {
  std::vector<AddedSegment> segments;
  size_t end = 0;        // the last segment ends here
  size_t space_end = 0;  // the white space that was skipped last ends here
  for (size_t at = 0; !literals.empty() && at < text.size();) {
    size_t visited = 0;
    const auto match = literals.match(text.substr(at), visited);
    steps.spend(visited, kPlace);
    if (!match) {
      ++at;
      continue;
    }
    Span span{at, at + match->size};
    at = span.end;
    const Rule& rule = rules_.at(match->value);
    if (split_special_ && is_special(match->value)) continue;
    if (rule.single_word && !stands_alone(text, span, steps)) {
      continue;
    }
    if (rule.lstrip) {
      // Bytes before `end` belong to other segments, and no byte is passed twice.
      const size_t begin = skip_whitespace_back(text, span.begin, end);
      steps.spend(span.begin - begin, kPlace);
      span.begin = std::max(begin, end);
    }
    if (rule.rstrip) {
      // A token inside white space that was skipped already ends where the white space ends.
      if (span.end >= space_end) {
        space_end = skip_whitespace(text, span.end);
        steps.spend(space_end - span.end, kPlace);
      }
      span.end = space_end;
    }
    if (end < span.begin) {
      segments.push_back({{end, span.begin}, -1});
    }
    // White space that an earlier token consumed may leave nothing of a later one.
    if (span.begin < span.end) segments.push_back({span, match->value});
    end = span.end;
  }
  if (end != text.size()) {
    segments.push_back({{end, text.size()}, -1});
  }
  return segments;
}

}  // namespace walsh
