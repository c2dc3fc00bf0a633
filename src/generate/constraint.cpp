#include "generate/constraint.h"

#include <algorithm>

#include "walsh/error.h"

namespace walsh {

std::span<const float> Constraint::allowed(std::span<const float> logits) {
  if (ended()) return {};
  logits_.assign(logits.begin(), logits.end());
  if (mask_logits(matcher_, stop_ids_, logits_)) return logits_;
  if (matcher_.complete()) return {};
  throw Error(ErrorCode::bad_input, "grammar", "no token of the vocabulary can continue the text");
}

void Constraint::accept(int32_t token) {
  if (std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) return;
  if (!matcher_.accept(token))
    throw Error(ErrorCode::internal, "grammar", "a token was chosen that is not allowed");
}

}  // namespace walsh
