#include "base/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr size_t kMaxPatternBytes = 16384;
// The interpreter may use this much memory for backtracking.
constexpr uint32_t kHeapLimitKib = 256 * 1024;

struct Release {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
template <typename T>
using Handle = std::unique_ptr<T, Release>;

// Returns PCRE2's text for an error code.
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

// Returns where the character after the one at `at` begins, i.e. the next byte that is not a
// continuation byte of UTF-8.
size_t next_character(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) {
    ++at;
  }
  return at;
}

}  // namespace

struct Regex::Program {
  std::string where;
  Handle<pcre2_code> code;

  // Compiles the pattern with a callout in front of every item, which counts steps. PCRE2's own
  // limits do not suffice: they are per match, not per text, and leave out the bytes that an item
  // passes over. Optimizations that search without items (looking ahead for a possible start) are
  // turned off for the same reason.
  Program(std::string_view pattern, std::string_view place, uint32_t options) : where(place) {
    const auto settings = allocated(pcre2_compile_context_create(nullptr));
    pcre2_set_newline(settings.get(), PCRE2_NEWLINE_LF);
    pcre2_set_max_pattern_length(settings.get(), kMaxPatternBytes);
    options |= PCRE2_AUTO_CALLOUT | PCRE2_NO_START_OPTIMIZE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    size_t offset = 0;
    code.reset(
        pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, settings.get()));
    if (code == nullptr) {
      throw Error(ErrorCode::bad_input, where,
                  "pattern is not a regular expression: " + message_of(error));
    }
  }
};

// Holds the state of a search in one text, so that several searches may run at the same time.
class Regex::Search {
 public:
  Search(const Program& program, std::string_view text, StepBudget& budget)
      : program_(program),
        text_(text),
        budget_(budget),
        data_(allocated(pcre2_match_data_create(1, nullptr))),
        context_(allocated(pcre2_match_context_create(nullptr))) {
    pcre2_set_match_limit(context_.get(), UINT32_MAX);  // The budget is the limit.
    pcre2_set_depth_limit(context_.get(), UINT32_MAX);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    pcre2_set_callout(context_.get(), count, this);
  }

  // Finds the first match at or after `start`. Returns false if there is none.
  bool find(size_t start) {
    int rc = match(start, 0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The backtracking was too deep for compiled code. The interpreter can do it, because it
      // keeps its state on the heap.
      rc = match(start, PCRE2_NO_JIT);
    }
    if (rc == PCRE2_ERROR_NOMATCH) {
      return false;
    }
    if (rc == PCRE2_ERROR_CALLOUT) {
      budget_.fail(program_.where + ": the pattern");
    }
    if (rc < 0) {
      throw Error(ErrorCode::limit, program_.where,
                  "matching the pattern failed: " + message_of(rc));
    }
    return true;
  }

  // Returns the match, after find() has returned true.
  Span found() const {
    const size_t* bounds = pcre2_get_ovector_pointer(data_.get());
    return {bounds[0], bounds[1]};
  }

 private:
  int match(size_t start, uint32_t options) {
    reached_ = start;
    return pcre2_match(program_.code.get(), units(text_), text_.size(), start,
                       options | PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  // Counts a step. It must not throw, because its caller is C.
  static int count(pcre2_callout_block* callout, void* self) {
    auto& search = *static_cast<Search*>(self);
    const size_t at = callout->current_position;
    const size_t passed = at > search.reached_ ? at - search.reached_ : 0;
    search.reached_ = at;
    return search.budget_.take(1 + passed) ? 0 : PCRE2_ERROR_CALLOUT;
  }

  const Program& program_;
  std::string_view text_;
  StepBudget& budget_;
  Handle<pcre2_match_data> data_;
  Handle<pcre2_match_context> context_;
  size_t reached_ = 0;  // The last counted item began here.
};

Regex Regex::for_text(std::string_view pattern, std::string_view where) {
  auto program = std::make_shared<Program>(pattern, where, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE);
  // Without JIT support PCRE2 uses its interpreter, which finds the same matches.
  pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(program));
}

// The interpreter matches names, because compiling the pattern would take longer than the few
// searches in short texts.
Regex Regex::for_names(std::string_view pattern, std::string_view where) {
  return Regex(std::make_shared<Program>(pattern, where, PCRE2_NEVER_UTF | PCRE2_DOLLAR_ENDONLY));
}

void Regex::find_all(std::string_view text, StepBudget& budget, std::vector<Span>& matches) const {
  matches.clear();
  Search search(*program_, text, budget);
  size_t start = 0;
  while (start <= text.size() && search.find(start)) {
    const Span span = search.found();
    // An empty match right after another match would split nothing off, so the search goes on one
    // character further.
    const bool touches = !matches.empty() && matches.back().end == span.end;
    if (span.begin == span.end && touches) {
      start = next_character(text, start);
      continue;
    }
    matches.push_back(span);
    start = span.end;
  }
}

bool Regex::matches(std::string_view text, StepBudget& budget) const {
  return Search(*program_, text, budget).find(0);
}

}  // namespace walsh
