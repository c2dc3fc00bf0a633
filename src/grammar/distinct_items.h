// Keeps the items of a list apart from each other ("uniqueItems" of JSON schemas), which no grammar
// of finite size can express. The items written so far are remembered, and an item that equals one
// of them may not end.
//
// The grammar lets each item be written in one way only but for the space inside of objects and
// lists, which is passed over here, so that equal texts are equal values. Only hashes of the texts
// are kept.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "grammar/stack_space.h"

namespace walsh::grammar {

class DistinctItems {
 public:
  // Says where a text is. It may be outside of such lists, in front of an item, in a string or
  // after a backslash there, in a number or word, in an object or a list, in a string inside of it
  // or after a backslash there, or after an item.
  enum class Place : uint8_t {
    outside,
    before,
    text,
    escape,
    other,
    inside,
    inner_text,
    inner_escape,
    behind
  };

  Place place() const { return place_; }

  // A trial follows what might come next; it does not change anything until it is kept.
  class Trial {
   public:
    explicit Trial(const DistinctItems& from) : from_(&from) { reset(); }
    // Forgets what was read.
    void reset();
    Place place() const { return place_; }

    // Moves past a byte; `opens` says that such a list begins if the byte is '['. Returns false if
    // an item ends there that is in the list already.
    bool read(uint8_t byte, bool opens);
    // Returns whether the item so far is the beginning of no other, so that it will be a new one.
    bool is_new() const;
    // Returns whether all ways in which the text can go on from `state` end an item that is in the
    // list.
    bool is_lost(StackSpace& space, StateId state) const;

   private:
    friend class DistinctItems;
    void begin_item(uint8_t byte);
    void lengthen_item(uint8_t byte);
    bool end_item();

    const DistinctItems* from_;
    Place place_ = Place::outside;
    int depth_ = 0;
    uint64_t hash_ = 0;
    bool fresh_ = false;  // a new list has begun, so that nothing of `from_` counts
    bool ended_ = false;  // the item that was open in `from_` has ended
    std::vector<uint64_t> items_, beginnings_, open_;  // these are not in `from_` yet
  };

  void keep(const Trial& trial);

 private:
  Place place_ = Place::outside;
  int depth_ = 0;                            // The unfinished item has this many open brackets.
  uint64_t hash_ = 0;                        // This is the hash of the unfinished item.
  std::unordered_set<uint64_t> items_;       // These are the hashes of the items of the list.
  std::unordered_set<uint64_t> beginnings_;  // These are the hashes of all beginnings of them.
  std::vector<uint64_t> open_;  // These are the hashes of the beginnings of the unfinished item.
};

// Returns the state after a text, which `items` follows as well. Returns kDead if an item is there
// twice.
StateId read_text(StackSpace& space, StateId state, DistinctItems::Trial& items,
                  std::string_view text);

}  // namespace walsh::grammar
