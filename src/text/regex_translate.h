// Rewrites an Oniguruma pattern (the dialect of tokenizer.json) into an equivalent PCRE2 pattern.
#pragma once

#include <string>
#include <string_view>

#include "base/regex.h"

namespace walsh {

// Returns the pattern of PCRE2. The two dialects disagree in places that change tokens: the sets
// after \s, \w, \b and \h, scripts in \p{...}, the (?m) flag, {,n} and {n,m}+. Those are
// rewritten; constructs without an exact equivalent (nested classes, class intersections,
// subexpression calls, ...) are refused, and so are intervals beyond {255,1000}, whose attempts a
// StepBudget would not see. The result assumes PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE and LF
// newlines. Throws bad_input naming `where` and the construct.
std::string oniguruma_to_pcre2(std::string_view pattern, std::string_view where);

// Returns the compiled pattern. Throws as above, and if it cannot be compiled.
Regex oniguruma_regex(std::string_view pattern, std::string_view where);

// Returns members of the usual \w for use inside a PCRE2 class. They are Unicode's alphabetic
// characters, marks, decimal digits and connectors.
const std::string& word_class();

}  // namespace walsh
