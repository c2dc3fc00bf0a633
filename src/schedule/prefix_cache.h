// Sequences that were evaluated and whose keys and values are kept, so that texts which begin as
// they do need not be evaluated again.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace walsh {

// Tokens that two texts have in common at their beginnings.
int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b);

class PrefixCache {
 public:
  struct Entry {
    int64_t sequence = 0;         // of the session
    std::vector<int32_t> tokens;  // that were evaluated
    std::string owner;            // of TextRequest
  };

  // The owner's entry that begins most like `prompt`, or null if none has `least` tokens in common.
  const Entry* find(std::span<const int32_t> prompt, const std::string& owner, int64_t least) const;
  // Makes `entry` the newest one. Entries of the same owner that are beginnings of it are of no use
  // any more: it returns their sequences, which the caller closes.
  std::vector<int64_t> keep(Entry entry);
  void touch(int64_t sequence);
  // Removes an entry; its sequence is the caller's to close or use.
  Entry take(int64_t sequence);
  // The one that was not used for the longest time, removed.
  std::optional<Entry> take_oldest();
  size_t size() const { return entries_.size(); }

 private:
  std::list<Entry> entries_;  // the least recently used first
};

}  // namespace walsh
