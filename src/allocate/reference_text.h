// A text together with the unquantized model's predictions on it, kept so that many variants of the
// model can be compared without running the original again.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "eval/meters.h"
#include "model/session.h"

namespace walsh {

struct ReferenceTextOptions {
  int64_t ctx = 512;                         // tokens per window
  int64_t windows = 8;                       // at most
  int32_t bos = -1;                          // replaces the first token of a window; -1: keep it
  uint64_t max_bytes = uint64_t{512} << 20;  // of the predictions kept
};

class ReferenceText {
 public:
  // Runs `reference` over the first windows of `text`. The most probable tokens of each position
  // are kept, or all of them if they fit into max_bytes; the rest counts as one event, so that the
  // divergence is never overstated. Throws usage if the text is too short for one window.
  ReferenceText(const Model& reference, std::span<const int32_t> text,
                const ReferenceTextOptions& options);

  // KL(reference || model) in nats over the tokens after the first of each window. The same for any
  // number of threads. Throws bad_input if logits are not finite. `on_window` is called before each
  // window and may throw to stop.
  Estimate divergence(const Model& model, const std::function<void()>& on_window = {}) const;

  int64_t windows() const { return static_cast<int64_t>(windows_.size()); }
  // number of compared positions
  int64_t tokens() const { return static_cast<int64_t>(rest_.size()); }
  int64_t kept() const { return kept_; }  // tokens per position

 private:
  void keep(int64_t position, std::span<const float> logits);
  double compare(int64_t position, std::span<const float> logits) const;

  ReferenceTextOptions options_;
  int64_t vocab_ = 0, kept_ = 0;
  std::vector<std::vector<int32_t>> windows_;
  AlignedArray<float> logits_;  // [position][kept]
  AlignedArray<int32_t> ids_;   // [position][kept]; empty if all tokens are kept, in their order
  std::vector<double> normalizers_;  // per position, log of the sum of all exponentials
  std::vector<double> rest_;         // per position, probability of the tokens not kept
};

}  // namespace walsh
