#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/stop.h"
#include "text/regex_translate.h"
#include "text/utf8.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
constexpr uint32_t kMatchLimit = 10'000'000;    // backtracking steps per match
constexpr uint32_t kHeapLimitKib = 256 * 1024;  // backtracking memory of the interpreter

struct Release {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
template <typename T>
using Handle = std::unique_ptr<T, Release>;

// PCRE2's text for an error code.
std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

template <typename T>
Handle<T> allocated(T* p) {
  if (p == nullptr) {
    throw Error(ErrorCode::limit, "regular expression", "out of memory");
  }
  return Handle<T>(p);
}

}  // namespace

struct Regex::Program {
  std::string where;
  Handle<pcre2_code> code;
  Handle<pcre2_match_context> context;

  // Room for the bounds of one match; not shared, so that searches may run at the same time.
  Handle<pcre2_match_data> new_match() const {
    return allocated(pcre2_match_data_create(1, nullptr));
  }

  // The first match at or after `start`; false if there is none.
  bool match(std::string_view text, size_t start, pcre2_match_data* data) const {
    int rc = pcre2_match(code.get(), units(text), text.size(), start, PCRE2_NO_UTF_CHECK, data,
                         context.get());
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      // Deep backtracking: the interpreter keeps its state on the heap.
      rc = pcre2_match(code.get(), units(text), text.size(), start,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context.get());
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
      return false;
    }
    if (rc < 0) {
      throw Error(ErrorCode::limit, where, "matching the pattern failed: " + message_of(rc));
    }
    return true;
  }
};

Regex Regex::from_oniguruma(std::string_view pattern, std::string_view where) {
  return from_pcre2(oniguruma_to_pcre2(pattern, where), where);
}

Regex Regex::from_pcre2(std::string_view pattern, std::string_view where) {
  auto program = std::make_shared<Program>();
  program->where = std::string(where);
  const auto settings = allocated(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(settings.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(settings.get(), kMaxPatternBytes);
  int code = 0;
  size_t offset = 0;
  program->code.reset(
      pcre2_compile(units(pattern), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                    &offset, settings.get()));
  if (program->code == nullptr) {
    throw Error(ErrorCode::bad_input, program->where,
                "pattern cannot be compiled: " + message_of(code));
  }
  // Without JIT support the interpreter is used; the matches are the same.
  pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  program->context = allocated(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(program->context.get(), kMatchLimit);
  pcre2_set_heap_limit(program->context.get(), kHeapLimitKib);
  return Regex(std::move(program));
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  const auto data = program_->new_match();
  const size_t* found = pcre2_get_ovector_pointer(data.get());
  size_t start = 0;
  while (start <= text.size() && program_->match(text, start, data.get())) {
    check_stop();
    const Span span{found[0], found[1]};
    // An empty match right behind a match would split nothing off; look one character further.
    const bool touches = !matches.empty() && matches.back().end == span.end;
    if (span.begin == span.end && touches) {
      start += start < text.size() ? decode_utf8(text.substr(start)).size : 1;
      continue;
    }
    matches.push_back(span);
    start = span.end;
  }
}

bool Regex::matches(std::string_view text) const {
  return program_->match(text, 0, program_->new_match().get());
}

}  // namespace walsh
