#include "serve/gemma_call.h"

#include <algorithm>

#include "io/wide_integers.h"
#include "serve/call_text.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr std::string_view kCall = "call:", kQuote = "<|\"|>", kSpace = " \n\r\t";

std::string_view trimmed(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

class Values : CallText {
 public:
  explicit Values(std::string_view text) : CallText(text) {}

  OrderedJson object() {
    OrderedJson members = OrderedJson::object();
    enter();
    expect('{');
    while (!take('}')) {
      std::string key = next_is(kQuote) ? quoted() : bare(":");
      expect(':');
      members[std::move(key)] = value();
      if (!take(',') && !next_is("}")) throw NoValue();
    }
    leave();
    return members;
  }

  bool done() {
    skip_space();
    return text_.empty();
  }

 private:
  OrderedJson value() {
    if (next_is("{")) return object();
    if (next_is("[")) return list();
    if (next_is(kQuote)) return quoted();
    // This is a number, true, false, null, or a text without quotes, which models write now and
    // then.
    const std::string word = bare(",}]");
    try {
      OrderedJson read = parse_exact_json(word, "an answer", {.refuse_duplicate_keys = false});
      if (!read.is_structured()) return read;
    } catch (const Error&) {
    }
    return word;
  }

  OrderedJson list() {
    OrderedJson items = OrderedJson::array();
    enter();
    expect('[');
    while (!take(']')) {
      items.push_back(value());
      if (!take(',') && !next_is("]")) throw NoValue();
    }
    leave();
    return items;
  }

  std::string quoted() {
    text_.remove_prefix(kQuote.size());
    const size_t end = text_.find(kQuote);
    if (end == text_.npos) throw NoValue();
    std::string result(text_.substr(0, end));
    text_.remove_prefix(end + kQuote.size());
    return result;
  }

  // Reads up to one of the bytes in `ends`, which stays.
  std::string bare(const char* ends) {
    const size_t end = text_.find_first_of(ends);
    if (end == text_.npos) throw NoValue();
    std::string result(trimmed(text_.substr(0, end)));
    text_.remove_prefix(end);
    return result;
  }
};

}  // namespace

std::string gemma_call_name(std::string_view text) {
  text = trimmed(text);
  const size_t brace = text.find('{');
  if (!text.starts_with(kCall) || brace == text.npos) return {};
  return std::string(trimmed(text.substr(kCall.size(), brace - kCall.size())));
}

std::optional<GemmaCall> parse_gemma_call(std::string_view text) {
  GemmaCall call;
  call.name = gemma_call_name(text);
  if (call.name.empty()) return std::nullopt;
  try {
    Values values(text.substr(text.find('{')));
    call.arguments = values.object();
    if (!values.done()) return std::nullopt;
  } catch (const CallText::NoValue&) {
    return std::nullopt;
  }
  return call;
}

}  // namespace walsh
