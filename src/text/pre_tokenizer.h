// Splits a text into the words within which the model merges, by tokenizer.json's "pre_tokenizer".
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/step_budget.h"
#include "io/json.h"

namespace walsh {

// Receives a non-empty word; `start` is how many of its first bytes stem from the first character
// of the whole input text.
using WordSink = FunctionRef<void(std::string_view word, size_t start)>;

// A splitter is one step. It passes the words of `text` (not empty) to `sink` and counts its work
// in `steps`. Const use is thread-safe.
class WordSplitter {
 public:
  virtual ~WordSplitter() = default;
  virtual void split(std::string_view text, size_t start, StepBudget& steps,
                     WordSink sink) const = 0;
};

// Supports Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation and
// sequences of them.
class PreTokenizer {
 public:
  // If `value` is null, the text is one word. Throws bad_input for anything else that is not
  // supported, naming it.
  PreTokenizer(const Json& value, std::string_view where);

  // Passes the words of a text to `sink`. `text` must be valid UTF-8. Throws limit if the step
  // budget is exceeded.
  void split(std::string_view text, size_t start, StepBudget& steps, WordSink sink) const;

 private:
  void run(size_t step, std::string_view text, size_t start, StepBudget& steps,
           WordSink sink) const;

  std::vector<std::unique_ptr<const WordSplitter>> splitters_;
};

}  // namespace walsh
