#include "schedule/prefix_cache.h"

#include <algorithm>

#include "walsh/error.h"

namespace walsh {

const PrefixCache::Entry* PrefixCache::find(const TextKey& prompt, const std::string& owner,
                                            int64_t least) const {
  const Entry* best = nullptr;
  int64_t longest = least - 1;
  for (const Entry& entry : entries_) {
    if (entry.owner != owner) continue;
    const int64_t common = common_prefix(prompt, entry.key());
    if (common < longest || (common == longest && best == nullptr)) continue;
    best = &entry;
    longest = common;
  }
  return best;
}

std::vector<int64_t> PrefixCache::keep(Entry entry) {
  std::vector<int64_t> closed;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool begins = it->owner == entry.owner && common_prefix(it->key(), entry.key()) ==
                                                        static_cast<int64_t>(it->tokens.size());
    if (begins) closed.push_back(it->sequence);
    it = begins ? entries_.erase(it) : std::next(it);
  }
  entries_.push_back(std::move(entry));
  return closed;
}

void PrefixCache::touch(int64_t sequence) {
  entries_.push_back(take(sequence));
}

PrefixCache::Entry PrefixCache::take(int64_t sequence) {
  const auto it = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& e) { return e.sequence == sequence; });
  if (it == entries_.end()) throw Error(ErrorCode::internal, "prefix cache", "no such sequence");
  Entry entry = std::move(*it);
  entries_.erase(it);
  return entry;
}

std::optional<PrefixCache::Entry> PrefixCache::take_oldest() {
  if (entries_.empty()) return std::nullopt;
  Entry entry = std::move(entries_.front());
  entries_.pop_front();
  return entry;
}

}  // namespace walsh
