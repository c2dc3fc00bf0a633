#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/byte_level.h"
#include "text/component.h"
#include "text/metaspace.h"
#include "text/pattern.h"
#include "text/regex_translate.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace walsh {
namespace {

// This finds GPT-2's words, which are English contractions, letters, numbers, other characters and
// runs of white space.
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Returns the number of the first `start` bytes of a text that lie in this piece.
size_t start_of(const Span& piece, size_t start) {
  return std::clamp(start, piece.begin, piece.end) - piece.begin;
}

// Passes on the pieces that are not empty.
void emit(std::string_view text, const std::vector<Span>& pieces, size_t start, WordSink sink) {
  for (const Span& piece : pieces) {
    if (piece.begin != piece.end) {
      sink(text.substr(piece.begin, piece.end - piece.begin), start_of(piece, start));
    }
  }
}

// Implements "Split", and "Whitespace" with a fixed pattern.
class PatternSplitter final : public WordSplitter {
 public:
  PatternSplitter(Pattern pattern, SplitBehavior behavior, bool inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), inverted_(inverted) {}

  void split(std::string_view text, size_t start, StepBudget& steps, WordSink sink) const override {
    std::vector<Span> matches;
    pattern_.find_all(text, steps, matches);
    emit(text, split_pieces(text.size(), matches, behavior_, inverted_), start, sink);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool inverted_;
};

// Splits at the characters of a class, each of which is one match.
class ClassSplitter final : public WordSplitter {
 public:
  ClassSplitter(bool (*contains)(char32_t), SplitBehavior behavior)
      : contains_(contains), behavior_(behavior) {}

  void split(std::string_view text, size_t start, StepBudget& /*steps*/,
             WordSink sink) const override {
    std::vector<Span> matches;
    for (size_t at = 0; at < text.size();) {
      const Utf8Unit unit = decode_utf8(text.substr(at));
      if (contains_(unit.code)) {
        matches.push_back({at, at + unit.size});
      }
      at += unit.size;
    }
    emit(text, split_pieces(text.size(), matches, behavior_, false), start, sink);
  }

 private:
  bool (*contains_)(char32_t);
  SplitBehavior behavior_;
};

// Splits into GPT-2's words (unless a Split before it has done so) and writes bytes as characters.
class ByteLevelSplitter final : public WordSplitter {
 public:
  ByteLevelSplitter(const Json& step, std::string_view where) {
    check_keys(step, {"add_prefix_space", "trim_offsets", "use_regex"}, where);
    add_prefix_space_ = get_bool(step, "add_prefix_space", where);
    if (find_bool(step, "use_regex", where).value_or(true)) {
      words_.emplace(oniguruma_regex(kGpt2Words, where));
    }
  }

  void split(std::string_view text, size_t start, StepBudget& steps, WordSink sink) const override {
    std::string prefixed;
    if (add_prefix_space_ && !text.starts_with(' ')) {
      prefixed.assign(" ").append(text);
      text = prefixed;
      start += start > 0 ? 1 : 0;
    }
    std::vector<Span> pieces;
    if (words_) {
      std::vector<Span> matches;
      words_->find_all(text, steps, matches);
      pieces = split_pieces(text.size(), matches, SplitBehavior::isolated, false);
    } else {
      pieces.push_back({0, text.size()});
    }
    std::string word;
    for (const Span& piece : pieces) {
      word.clear();
      const size_t first = start_of(piece, start);
      append_byte_level(text.substr(piece.begin, first), word);
      const size_t word_start = word.size();
      append_byte_level(text.substr(piece.begin + first, piece.end - piece.begin - first), word);
      if (!word.empty()) {
        sink(word, word_start);
      }
    }
  }

 private:
  bool add_prefix_space_ = false;
  std::optional<Regex> words_;
};

// Replaces spaces by marks, each of which begins a word.
class MetaspaceSplitter final : public WordSplitter {
 public:
  explicit MetaspaceSplitter(Metaspace settings) : settings_(std::move(settings)) {}

  void split(std::string_view text, size_t start, StepBudget& /*steps*/,
             WordSink sink) const override {
    const std::string& mark = settings_.replacement;
    std::string marked;
    marked.reserve(text.size() + text.size() / 2 + mark.size());
    const bool prepend = settings_.scheme == PrependScheme::always ||
                         (settings_.scheme == PrependScheme::first && start > 0);
    if (prepend && !text.starts_with(' ') && !text.starts_with(mark)) {
      marked += mark;
    }
    size_t marked_start = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') {
        marked += mark;
      } else {
        marked.push_back(text[i]);
      }
      marked_start = i < start ? marked.size() : marked_start;
    }
    if (!settings_.split) {
      sink(marked, marked_start);
      return;
    }
    std::vector<Span> matches;
    for (size_t at = marked.find(mark); at != marked.npos; at = marked.find(mark, at)) {
      matches.push_back({at, at + mark.size()});
      at += mark.size();
    }
    emit(marked, split_pieces(marked.size(), matches, SplitBehavior::merged_with_next, false),
         marked_start, sink);
  }

 private:
  Metaspace settings_;
};

// Uses Rust's \w, which unlike Oniguruma's contains the join controls.
PatternSplitter whitespace_words(std::string_view where) {
  const std::string word = word_class() + "\\x{200C}\\x{200D}";
  const Regex regex = Regex::for_text("[" + word + "]+|[^" + word + "\\p{White_Space}]+", where);
  return PatternSplitter(Pattern::regex(regex), SplitBehavior::removed, true);
}

SplitBehavior behavior_of(const Json& step, std::string_view where) {
  return read_split_behavior(get_string(step, "behavior", where), where);
}

std::unique_ptr<const WordSplitter> read_step(const Json& step, std::string_view where) {
  const std::string type = get_string(step, "type", where);
  if (type == "Split") {
    check_keys(step, {"pattern", "behavior", "invert"}, where);
    return std::make_unique<PatternSplitter>(read_pattern(step, "pattern", where),
                                             behavior_of(step, where),
                                             get_bool(step, "invert", where));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelSplitter>(step, where);
  }
  if (type == "Metaspace") {
    return std::make_unique<MetaspaceSplitter>(read_metaspace(step, where));
  }
  if (type == "Digits") {
    check_keys(step, {"individual_digits"}, where);
    const bool single = get_bool(step, "individual_digits", where);
    return std::make_unique<ClassSplitter>(
        is_numeric, single ? SplitBehavior::isolated : SplitBehavior::contiguous);
  }
  if (type == "Punctuation") {
    check_keys(step, {"behavior"}, where);
    return std::make_unique<ClassSplitter>(is_punctuation, step.contains("behavior")
                                                               ? behavior_of(step, where)
                                                               : SplitBehavior::isolated);
  }
  if (type == "Whitespace") {
    check_keys(step, {}, where);
    return std::make_unique<PatternSplitter>(whitespace_words(where));
  }
  if (type == "WhitespaceSplit") {
    check_keys(step, {}, where);
    return std::make_unique<ClassSplitter>(is_whitespace, SplitBehavior::removed);
  }
  refuse_component("pre-tokenizer", type, where);
}

}  // namespace

PreTokenizer::PreTokenizer(const Json& value, std::string_view where) {
  // Each ByteLevel doubles the bytes above 0x7F, so a chain of them would grow exponentially.
  int byte_levels = 0;
  for (const Json* step : flatten_sequence(value, "pretokenizers", where)) {
    byte_levels += get_string(*step, "type", where) == "ByteLevel" ? 1 : 0;
    if (byte_levels > 1) {
      throw Error(ErrorCode::bad_input, std::string(where), "a second ByteLevel is not supported");
    }
    splitters_.push_back(read_step(*step, where));
  }
}

void PreTokenizer::split(std::string_view text, size_t start, StepBudget& steps,
                         WordSink sink) const {
  if (!text.empty()) {
    run(0, text, start, steps, sink);
  }
}

void PreTokenizer::run(size_t step, std::string_view text, size_t start, StepBudget& steps,
                       WordSink sink) const {
  steps.spend(text.size(), "pre-tokenizer");
  if (step == splitters_.size()) {
    sink(text, start);
    return;
  }
  splitters_[step]->split(text, start, steps, [&](std::string_view word, size_t word_start) {
    run(step + 1, word, word_start, steps, sink);
  });
}

}  // namespace walsh
