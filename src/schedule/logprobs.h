// Probabilities of tokens from a row of logits.
#pragma once

#include <span>

#include "schedule/request.h"

namespace walsh {

// Of `token` and of the `best` best ones, of equals the lowest id first. Logits that are not
// numbers count as minus infinity.
ScoredToken score_token(std::span<const float> logits, int32_t token, int best);

}  // namespace walsh
