#include "serve/stopped_text.h"

#include <algorithm>
#include <utility>

namespace walsh {
namespace {

// Bytes at the end of `text` that are the beginning of `stop`.
size_t open_end(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  return 0;
}

}  // namespace

StoppedText::StoppedText(const Tokenizer& tokenizer, std::span<const int32_t> before,
                         std::vector<std::string> stops)
    : decoder_(tokenizer, true), stops_(std::move(stops)) {
  std::erase(stops_, std::string());
  for (const int32_t token : before)
    decoder_.push(token);
}

std::string StoppedText::push(int32_t token) {
  return release(decoder_.push(token), false);
}

std::string StoppedText::finish() {
  return release(decoder_.finish(), true);
}

std::string StoppedText::release(std::string more, bool all) {
  if (stop_) return {};
  held_ += more;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = held_.find(stop);
    if (found >= end) continue;
    end = found;
    stop_ = stop;
  }
  if (stop_) {
    return std::exchange(held_, {}).substr(0, end);
  }
  size_t kept = 0;
  for (const std::string& stop : stops_)
    kept = all ? 0 : std::max(kept, open_end(held_, stop));
  // A stop string may begin within a character only if it is not UTF-8; requests are.
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace walsh
