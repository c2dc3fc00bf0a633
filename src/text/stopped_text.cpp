#include "text/stopped_text.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace walsh {
namespace {

// Returns the number of bytes at the end of `text` that are a prefix of `stop`.
size_t open_end(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  return 0;
}

}  // namespace

StoppedText::StoppedText(const Tokenizer& tokenizer, std::span<const int32_t> before,
                         std::vector<std::string> stops)
    : tokenizer_(tokenizer), decoder_(tokenizer, false), stops_(std::move(stops)) {
  std::erase(stops_, std::string());
  for (const int32_t token : before)
    if (!tokenizer.is_special(token)) decoder_.push(token);
}

void StoppedText::show(const std::vector<std::string>& special_tokens) {
  for (const std::string& text : special_tokens)
    if (const auto token = tokenizer_.token_id(text)) shown_.push_back(*token);
}

std::string StoppedText::push(int32_t token) {
  const bool hidden = tokenizer_.is_special(token) &&
                      std::find(shown_.begin(), shown_.end(), token) == shown_.end();
  return release(hidden ? std::string() : decoder_.push(token), false);
}

std::string StoppedText::finish() {
  return release(decoder_.finish(), true);
}

std::string StoppedText::release(std::string more, bool all) {
  characters_ += count_characters(more);
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
  // Only a stop string that is not UTF-8 could begin within a character; requests are UTF-8.
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace walsh
