#include "text/pattern.h"

#include <algorithm>

#include "io/printable.h"
#include "text/regex_translate.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Comparing this many bytes at every position of a text is still fast.
constexpr size_t kMaxLiteralBytes = 4096;

// A piece is a part of the text; `match` says whether it counts as a match.
struct Piece {
  Span span;
  bool match;
};

// Returns matches and the text between them, which together cover the text.
std::vector<Piece> cover(size_t size, const std::vector<Span>& matches, bool inverted) {
  std::vector<Piece> pieces;
  pieces.reserve(2 * matches.size() + 1);
  size_t end = 0;
  for (const Span& match : matches) {
    if (end != match.begin) {
      pieces.push_back({{end, match.begin}, inverted});
    }
    pieces.push_back({match, !inverted});
    end = match.end;
  }
  if (end != size) {
    pieces.push_back({{end, size}, inverted});
  }
  return pieces;
}

// Joins a piece to its predecessor when `joins(match, previous_match)`.
template <typename Joins>
std::vector<Span> join(const std::vector<Piece>& pieces, Joins joins) {
  std::vector<Span> out;
  bool previous = false;
  for (const Piece& piece : pieces) {
    if (!out.empty() && joins(piece.match, previous)) {
      out.back().end = piece.span.end;
    } else {
      out.push_back(piece.span);
    }
    previous = piece.match;
  }
  return out;
}

// Joins a match to the piece that follows it, unless that piece is a match as well.
std::vector<Span> join_with_next(const std::vector<Piece>& pieces) {
  std::vector<Span> out;
  bool next = false;
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    if (!out.empty() && piece->match && !next) {
      out.back().begin = piece->span.begin;
    } else {
      out.push_back(piece->span);
    }
    next = piece->match;
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

Pattern Pattern::literal(std::string_view text, std::string_view where) {
  if (text.empty()) {
    throw Error(ErrorCode::bad_input, std::string(where), "the pattern is empty");
  }
  if (text.size() > kMaxLiteralBytes) {
    throw Error(ErrorCode::bad_input, std::string(where),
                "a pattern of " + std::to_string(text.size()) + " bytes, expected at most " +
                    std::to_string(kMaxLiteralBytes));
  }
  return Pattern(std::string(text));
}

Pattern Pattern::regex(std::string_view oniguruma, std::string_view where) {
  return Pattern(oniguruma_regex(oniguruma, where));
}

void Pattern::find_all(std::string_view text, StepBudget& steps, std::vector<Span>& matches) const {
  if (const auto* regex = std::get_if<Regex>(&what_)) {
    regex->find_all(text, steps, matches);
    return;
  }
  steps.spend(text.size(), "pattern");
  const auto& literal = std::get<std::string>(what_);
  matches.clear();
  for (size_t at = text.find(literal); at != text.npos; at = text.find(literal, at)) {
    matches.push_back({at, at + literal.size()});
    at += literal.size();
  }
}

std::string Pattern::replace_all(std::string_view text, std::string_view content, size_t max_size,
                                 StepBudget& steps) const {
  size_t start = 0;
  return replace_all(text, content, start, max_size, steps);
}

std::string Pattern::replace_all(std::string_view text, std::string_view content, size_t& start,
                                 size_t max_size, StepBudget& steps) const {
  std::vector<Span> matches;
  find_all(text, steps, matches);
  size_t size = text.size() + matches.size() * content.size();
  for (const Span& match : matches) {
    size -= match.end - match.begin;
  }
  if (size > max_size) {
    throw Error(ErrorCode::limit, "replacement",
                "a text of " + std::to_string(text.size()) + " bytes would grow to " +
                    std::to_string(size));
  }
  std::string out;
  out.reserve(size);
  size_t end = 0, new_start = 0;
  for (const Span& match : matches) {
    out.append(text.substr(end, match.begin - end));
    new_start += std::min(match.begin, std::max(start, end)) - end;
    out.append(content);
    new_start += match.end <= start ? content.size() : 0;
    end = match.end;
  }
  out.append(text.substr(end));
  start = new_start + std::max(start, end) - end;
  return out;
}

SplitBehavior read_split_behavior(std::string_view name, std::string_view where) {
  using enum SplitBehavior;
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", isolated},
      {"Removed", removed},
      {"MergedWithPrevious", merged_with_previous},
      {"MergedWithNext", merged_with_next},
      {"Contiguous", contiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) {
      return behavior;
    }
  }
  throw Error(ErrorCode::bad_input, std::string(where),
              "the behavior \"" + printable(name, 48) + "\" is not known");
}

std::vector<Span> split_pieces(size_t size, const std::vector<Span>& matches,
                               SplitBehavior behavior, bool inverted) {
  const std::vector<Piece> pieces = cover(size, matches, inverted);
  switch (behavior) {
    case SplitBehavior::contiguous:
      return join(pieces, [](bool match, bool previous) { return match == previous; });
    case SplitBehavior::merged_with_previous:
      return join(pieces, [](bool match, bool previous) { return match && !previous; });
    case SplitBehavior::merged_with_next:
      return join_with_next(pieces);
    case SplitBehavior::isolated:
    case SplitBehavior::removed:
      break;
  }
  std::vector<Span> out;
  out.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (behavior == SplitBehavior::isolated || !piece.match) {
      out.push_back(piece.span);
    }
  }
  return out;
}

}  // namespace walsh
