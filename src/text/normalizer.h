// Transforms texts as tokenizer.json's "normalizer" says.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/step_budget.h"
#include "io/json.h"

namespace walsh {

// Supports NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and sequences of them.
class Normalizer {
 public:
  Normalizer();
  // If `value` is null, nothing is changed. Throws bad_input for anything else that is not
  // supported, naming it.
  Normalizer(const Json& value, std::string_view where);
  ~Normalizer();
  Normalizer(Normalizer&&) noexcept;
  Normalizer& operator=(Normalizer&&) noexcept;

  // Returns the normalized text. `text` must be valid UTF-8. Throws limit if replacements make it
  // grow too much or the step budget is exceeded.
  std::string apply(std::string text, StepBudget& steps) const;
  // Returns the same. `start` is the number of leading bytes that stem from the first character of
  // the input, and is updated for the result.
  std::string apply(std::string text, size_t& start, StepBudget& steps) const;

 private:
  struct Step;
  std::vector<Step> steps_;
};

}  // namespace walsh
