#include "text/normalizer.h"

#include <algorithm>
#include <functional>

#include "text/component.h"
#include "text/pattern.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace walsh {

// Transforms a text, which may grow up to a number of bytes; `start` is as in apply(). Const calls
// are thread-safe.
using Transform =
    std::function<std::string(std::string, size_t& start, size_t max_size, StepBudget& steps)>;

struct Normalizer::Step {
  Transform run;
};

namespace {

// Returns the bytes of white space at the start of a valid UTF-8 text.
size_t leading_whitespace(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Unit unit = decode_utf8(text.substr(n));
    if (!is_whitespace(unit.code)) {
      break;
    }
    n += unit.size;
  }
  return n;
}

// Returns the bytes of white space at the end of a text. It steps back over continuation bytes.
size_t trailing_whitespace(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
      --begin;
    }
    if (!is_whitespace(decode_utf8(text.substr(begin, end - begin)).code)) {
      break;
    }
    end = begin;
  }
  return text.size() - end;
}

Transform form(NormalForm kind) {
  return [kind](std::string text, size_t& start, size_t, StepBudget& steps) {
    std::string out = normalize(text, kind, steps);
    if (start > 0) {
      // Combining characters that join the first character count as part of it.
      const std::string first = normalize(std::string_view(text).substr(0, start), kind, steps);
      const auto [end, unused] = std::mismatch(first.begin(), first.end(), out.begin(), out.end());
      start = std::max<size_t>(static_cast<size_t>(end - first.begin()), decode_utf8(out).size);
    }
    return out;
  };
}

Transform read_strip(const Json& step, std::string_view where) {
  check_keys(step, {"strip_left", "strip_right"}, where);
  const bool left = get_bool(step, "strip_left", where);
  const bool right = get_bool(step, "strip_right", where);
  return [left, right](std::string text, size_t& start, size_t, StepBudget&) {
    if (right) {
      text.resize(text.size() - trailing_whitespace(text));
    }
    const size_t removed = left ? leading_whitespace(text) : 0;
    text.erase(0, removed);
    start = std::min(start - std::min(start, removed), text.size());
    return text;
  };
}

Transform read_prepend(const Json& step, std::string_view where) {
  check_keys(step, {"prepend"}, where);
  return [prefix = get_string(step, "prepend", where)](std::string text, size_t& start, size_t,
                                                       StepBudget&) {
    start += start > 0 ? prefix.size() : 0;
    return text.empty() ? text : prefix + text;
  };
}

Transform read_replace(const Json& step, std::string_view where) {
  check_keys(step, {"pattern", "content"}, where);
  return [pattern = read_pattern(step, "pattern", where),
          content = get_string(step, "content", where)](std::string text, size_t& start,
                                                        size_t max_size, StepBudget& steps) {
    return pattern.replace_all(text, content, start, max_size, steps);
  };
}

Transform read_step(const Json& step, std::string_view where) {
  const std::string type = get_string(step, "type", where);
  if (type == "Strip") {
    return read_strip(step, where);
  }
  if (type == "Prepend") {
    return read_prepend(step, where);
  }
  if (type == "Replace") {
    return read_replace(step, where);
  }
  check_keys(step, {}, where);
  if (type == "NFC") {
    return form(NormalForm::nfc);
  }
  if (type == "NFD") {
    return form(NormalForm::nfd);
  }
  if (type == "NFKC") {
    return form(NormalForm::nfkc);
  }
  if (type == "NFKD") {
    return form(NormalForm::nfkd);
  }
  if (type == "Lowercase") {
    return [](std::string text, size_t& start, size_t, StepBudget&) {
      start = lowercase(std::string_view(text).substr(0, start)).size();
      return lowercase(text);
    };
  }
  refuse_component("normalizer", type, where);
}

}  // namespace

Normalizer::Normalizer() = default;
Normalizer::~Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;

Normalizer::Normalizer(const Json& value, std::string_view where) {
  for (const Json* step : flatten_sequence(value, "normalizers", where)) {
    steps_.push_back({read_step(*step, where)});
  }
}

std::string Normalizer::apply(std::string text, StepBudget& steps) const {
  size_t start = 0;
  return apply(std::move(text), start, steps);
}

std::string Normalizer::apply(std::string text, size_t& start, StepBudget& steps) const {
  const size_t max_size = max_replaced_size(text.size());
  for (const Step& step : steps_) {
    steps.spend(text.size(), "normalizer");
    text = step.run(std::move(text), start, max_size, steps);
  }
  return text;
}

}  // namespace walsh
