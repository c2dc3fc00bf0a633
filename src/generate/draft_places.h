// Holds the common parts of draft sources that keep a sequence for each text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/common_prefix.h"
#include "generate/draft_depth.h"
#include "generate/draft_source.h"

namespace walsh {

// A sequence stays when its text has ended: the next text may begin with the same tokens.
struct DraftPlace {
  int64_t sequence = -1;
  bool taken = false;
  uint64_t used = 0;  // it was taken at this step of a clock
  std::string owner;
  std::vector<int32_t> tokens;  // the sequence has read these
  DraftDepth depth;
};

// Takes the free place that has read most of `tokens` for this owner, and of several such places
// the one that was taken longest ago. What it has read for another owner is forgotten. Returns null
// if all places are taken. `now` is the time of a clock.
template <class Place>
Place* take_place(std::span<Place> places, std::span<const int32_t> tokens,
                  const std::string& owner, uint64_t now) {
  Place* best = nullptr;
  int64_t best_common = -1;
  for (Place& candidate : places) {
    if (candidate.taken) continue;
    const bool may = candidate.owner == owner;
    const int64_t common = may ? common_prefix(candidate.tokens, tokens) : 0;
    if (common < best_common || (common == best_common && candidate.used > best->used)) continue;
    best = &candidate;
    best_common = common;
  }
  if (best == nullptr) return nullptr;
  if (best->owner != owner) best->tokens.clear();
  best->taken = true;
  best->used = now;
  best->owner = owner;
  best->depth = {};
  return best;
}

// Appends the chosen token to the draft. Returns false where no token can be chosen, for example
// where a grammar ends.
bool guess_token(TokenChooser& chooser, std::span<const float> logits, DraftTask& task);

}  // namespace walsh
