// The prefix cache holds evaluated sequences whose keys and values are kept, so that texts with the
// same beginning need not evaluate it again.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "schedule/prompt_images.h"

namespace walsh {

class PrefixCache {
 public:
  struct Entry {
    int64_t sequence = 0;             // It has this number in the session.
    std::vector<int32_t> tokens;      // These were evaluated.
    std::string owner;                // TextRequest::owner
    std::vector<PromptImage> images;  // They are without values.
    int64_t place = -1;               // Its text had this place; -1: none.

    TextKey key() const { return {tokens, images}; }
  };

  // Returns the owner's entry with the longest common prefix with `prompt`; null if none shares
  // `least` tokens.
  const Entry* find(const TextKey& prompt, const std::string& owner, int64_t least) const;
  // Adds `entry` as the most recent one. Entries of the same owner that are prefixes of it become
  // useless: their sequences are returned, for the caller to close.
  std::vector<int64_t> keep(Entry entry);
  void touch(int64_t sequence);
  // Removes an entry; the caller uses or closes its sequence.
  Entry take(int64_t sequence);
  // Returns the entry that was added or used last; null if there is none.
  const Entry* latest() const { return entries_.empty() ? nullptr : &entries_.back(); }
  // Removes the least recently used entry.
  std::optional<Entry> take_oldest();
  size_t size() const { return entries_.size(); }
  const std::list<Entry>& entries() const { return entries_; }

 private:
  std::list<Entry> entries_;  // The least recently used one is first.
};

}  // namespace walsh
