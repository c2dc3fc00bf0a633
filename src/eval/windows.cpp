#include "eval/windows.h"

#include <algorithm>
#include <string>

#include "walsh/error.h"

namespace walsh {
namespace {

void check(int64_t tokens, const WindowOptions& options) {
  if (options.ctx < 2) {
    throw Error(ErrorCode::usage, "--ctx",
                "a window needs at least 2 tokens, not " + std::to_string(options.ctx));
  }
  const bool strided = options.rule == WindowRule::strided;
  if (strided && (options.stride < 1 || options.stride > options.ctx)) {
    throw Error(ErrorCode::usage, "--stride",
                std::to_string(options.stride) + " is not between 1 and --ctx " +
                    std::to_string(options.ctx));
  }
  if (tokens < (strided ? 2 : options.ctx)) {
    throw Error(ErrorCode::usage, "--text",
                "the text has " + std::to_string(tokens) + " tokens, one window needs " +
                    std::to_string(strided ? 2 : options.ctx));
  }
}

std::vector<Window> strided_windows(int64_t tokens, const WindowOptions& options) {
  std::vector<Window> windows;
  int64_t scored_to = 1;  // the text's first token has nothing before it
  for (int64_t begin = 0; scored_to < tokens; begin += options.stride) {
    const int64_t end = std::min(begin + options.ctx, tokens);
    // With stride == ctx a window's first token has no context in it and is not scored.
    const int64_t first = std::max<int64_t>(scored_to - begin, 1);
    if (begin + first < end) windows.push_back({begin, end, first});
    scored_to = end;
  }
  return windows;
}

}  // namespace

std::vector<Window> plan_windows(int64_t tokens, const WindowOptions& options) {
  check(tokens, options);
  std::vector<Window> windows;
  if (options.rule == WindowRule::strided) {
    windows = strided_windows(tokens, options);
  } else {
    const int64_t first =
        options.rule == WindowRule::full ? 1 : std::max<int64_t>(options.ctx / 2, 1);
    for (int64_t begin = 0; begin + options.ctx <= tokens; begin += options.ctx) {
      windows.push_back({begin, begin + options.ctx, first});
    }
  }
  const size_t limit = static_cast<size_t>(std::max<int64_t>(options.chunks, 0));
  if (limit > 0 && windows.size() > limit) windows.resize(limit);
  return windows;
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
