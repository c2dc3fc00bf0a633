// Computes the log-probabilities of tokens from a row of logits.
#pragma once

#include <span>

#include "schedule/request.h"

namespace walsh {

// Scores `token` and the `best` most probable tokens (of equal ones the lowest id first). NaN
// counts as minus infinity.
ScoredToken score_token(std::span<const float> logits, int32_t token, int best);

}  // namespace walsh
