// Makes texts from patterns, and from other texts.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace walsh::jinja {

// Computes `pattern % values`, where `values` is one value, a tuple, or a dict for %(name)s.
Value format_percent(Runtime& runtime, const Text& pattern, const Value& values);
// Computes pattern.format(...).
Value format_braces(Runtime& runtime, const Text& pattern, const Arguments& arguments);
// Does what strftime does in the C locale; %-d and the like leave out the padding.
Value format_time(Runtime& runtime, std::string_view pattern, const std::tm& time);

// Returns the lines of a text as str.splitlines() gives them.
std::vector<std::string_view> lines_of(std::string_view text, bool keep_ends);
// Replaces the first `limit` occurrences of `old` (all if `limit` is negative).
Value replaced(Runtime& runtime, const Text& text, std::string_view old, std::string_view with,
               int64_t limit);
// Computes str.isupper() and str.islower(). They are true if there is a cased letter and none has
// the other case.
bool all_cased(std::string_view text, bool up);

}  // namespace walsh::jinja
