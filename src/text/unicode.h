// Gives character properties and normalization forms, with utf8proc's data.
#pragma once

#include <string>
#include <string_view>

#include "base/step_budget.h"

namespace walsh {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

bool is_whitespace(char32_t c);   // c has the property White_Space
bool is_numeric(char32_t c);      // c is in the categories Nd, Nl, No
bool is_punctuation(char32_t c);  // c is in the categories P* or is ASCII punctuation

// Returns the normal form of a text, which must be valid UTF-8. Takes O(n log n) in its length,
// also for long runs of combining marks. `steps` is asked now and then whether to continue.
std::string normalize(std::string_view text, NormalForm form, StepBudget& steps);

// Maps character by character with full case mapping, without the context rule for final sigma.
std::string lowercase(std::string_view text);

}  // namespace walsh
