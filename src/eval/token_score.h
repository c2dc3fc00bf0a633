// Computes what one scored token contributes to perplexity and divergence. These are pure functions
// over two rows of logits, in double precision, with natural logarithms.
#pragma once

#include <cstdint>
#include <span>

namespace walsh {

// Returns log(sum(exp(logits))), computed around the maximum. NaN or +inf among the logits gives
// NaN.
double log_sum_exp(std::span<const float> logits);

// Returns -log p(target). Throws internal if target is outside the vocabulary, bad_input if the
// logits are not finite.
double token_nll(std::span<const float> logits, int32_t target);

struct TokenScore {
  double nll_reference = 0;  // it is -log p_reference(target)
  double nll = 0;            // it is -log p(target)
  double kld = 0;            // it is KL(reference || model) over the vocabulary
  double dp = 0;             // it is p(target) - p_reference(target)
  bool same_top = false;     // both models have the same most probable token
};

// Compares the model's logits with the reference's for one position; the spans have equal size.
// Throws like token_nll.
TokenScore compare_token(std::span<const float> reference, std::span<const float> logits,
                         int32_t target);

}  // namespace walsh
