// Splits a tokenized text into the windows on which perplexity is measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace walsh {

enum class WindowRule {
  // Windows are disjoint and begin with BOS if the tokenizer adds it; tokens ctx/2 .. ctx-1 are
  // scored.
  second_half,
  full,  // in the same windows, tokens 1 .. ctx-1 are scored
  // A window begins every `stride` tokens, they overlap, each token is scored once, and none has a
  // BOS (as in HF's).
  strided,
};

struct WindowOptions {
  WindowRule rule = WindowRule::second_half;
  int64_t ctx = 512;
  int64_t stride = 0;  // only the rule strided uses it, from 1 to ctx
  int64_t chunks = 0;  // there are at most this many windows; 0 means all
};

// Throws usage for options that no text can satisfy.
void check_windows(const WindowOptions& options);

// Token i of a window is scored by the logits of position i - 1, for first_scored <= i < end.
struct Window {
  int64_t begin = 0;         // the window begins here in the text
  int64_t end = 0;           // it is one past the last token
  int64_t first_scored = 0;  // it is counted in the window, >= 1
  int64_t scored() const { return end - begin - first_scored; }
};

// Computes the windows of a text of `tokens` tokens on demand. An incomplete last window is
// dropped, except in strided mode.
class WindowPlan {
 public:
  // Throws usage if ctx < 2, the stride does not fit, or the text is too short for one window.
  WindowPlan(int64_t tokens, const WindowOptions& options);

  int64_t size() const { return size_; }
  Window operator[](int64_t index) const;

 private:
  int64_t tokens_;
  WindowOptions options_;
  int64_t size_ = 0;
};

// Returns the tokens of a window as the model sees them. The first one is replaced by `bos`, unless
// that is negative.
std::vector<int32_t> window_tokens(std::span<const int32_t> text, const Window& window,
                                   int32_t bos);

}  // namespace walsh
