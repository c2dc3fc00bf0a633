#include "eval/windows.h"

#include <algorithm>
#include <string>

#include "base/spelling.h"
#include "walsh/error.h"

namespace walsh {
namespace {

bool is_strided(const WindowOptions& options) {
  return options.rule == WindowRule::strided;
}

void check_length(int64_t tokens, const WindowOptions& options) {
  const int64_t needed = is_strided(options) ? 2 : options.ctx;
  if (tokens >= needed) return;
  throw Error(
      ErrorCode::usage, "--text",
      "the text has " + counted(tokens, "token") + ", one window needs " + std::to_string(needed));
}

}  // namespace

void check_windows(const WindowOptions& options) {
  if (options.ctx < 2) {
    throw Error(ErrorCode::usage, "--ctx",
                "a window needs at least 2 tokens, not " + std::to_string(options.ctx));
  }
  if (is_strided(options) && (options.stride < 1 || options.stride > options.ctx)) {
    throw Error(ErrorCode::usage, "--stride",
                std::to_string(options.stride) + " is not between 1 and --ctx " +
                    std::to_string(options.ctx));
  }
}

WindowPlan::WindowPlan(int64_t tokens, const WindowOptions& options)
    : tokens_(tokens), options_(options) {
  check_windows(options);
  check_length(tokens, options);
  if (is_strided(options)) {
    const int64_t behind = std::max<int64_t>(tokens - options.ctx, 0);
    size_ = 1 + (behind + options.stride - 1) / options.stride;
    // With stride == ctx the text's last token may stand alone in a window.
    if (size_ > 1 && (*this)[size_ - 1].scored() == 0) --size_;
  } else {
    size_ = tokens / options.ctx;
  }
  if (options.chunks > 0) size_ = std::min(size_, options.chunks);
}

Window WindowPlan::operator[](int64_t index) const {
  const int64_t ctx = options_.ctx;
  if (!is_strided(options_)) {
    const int64_t first = options_.rule == WindowRule::full ? 1 : std::max<int64_t>(ctx / 2, 1);
    return {index * ctx, (index + 1) * ctx, first};
  }
  const int64_t begin = index * options_.stride;
  // A window scores from the first token on that the window before has not scored. A token without
  // context (the first of the text, or with stride == ctx the first of a window) is never scored.
  const int64_t first = index == 0 ? 1 : std::max<int64_t>(ctx - options_.stride, 1);
  return {begin, std::min(begin + ctx, tokens_), first};
}

std::vector<int32_t> window_tokens(std::span<const int32_t> text, const Window& window,
                                   int32_t bos) {
  const std::span<const int32_t> part = text.subspan(
      static_cast<size_t>(window.begin), static_cast<size_t>(window.end - window.begin));
  std::vector<int32_t> tokens(part.begin(), part.end());
  if (bos >= 0) tokens.front() = bos;
  return tokens;
}

}  // namespace walsh
