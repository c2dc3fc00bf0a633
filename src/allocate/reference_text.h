// Keeps the unquantized model's predictions on a text, so that many variants of the model can be
// compared without running the original again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned.h"
#include "calibrate/layer_stream.h"
#include "eval/meters.h"

namespace walsh {

class ReferenceText {
 public:
  static constexpr uint64_t kMaxBytes = uint64_t{256} << 20;

  // Keeps what the model of `stream`, which is after its last layer, predicts. Per position, these
  // are the most probable tokens, or all of them if they fit into max_bytes. The rest counts as one
  // event, so that the divergence is never overstated. All windows are of one length, of two tokens
  // or more. Throws bad_input if logits are not finite.
  explicit ReferenceText(LayerStream& stream, uint64_t max_bytes = kMaxBytes);

  // Returns KL(reference || model of the stream) in nats over the tokens after the first of each
  // window. The stream has the same windows and is after its last layer. The result does not
  // depend on the number of threads. Throws bad_input if logits are not finite.
  Estimate divergence(LayerStream& stream) const;

  // Returns the number of compared positions.
  int64_t tokens() const { return static_cast<int64_t>(rest_.size()); }
  int64_t kept() const { return kept_; }  // this many tokens are kept per position
  uint64_t bytes() const { return logits_.size() * sizeof(float) + ids_.size() * sizeof(int32_t); }

 private:
  // Calls body(position, logits), several at once, for every token but the last of each window.
  template <typename Body>
  void for_positions(LayerStream& stream, const Body& body) const;
  void keep(int64_t position, std::span<const float> logits);
  double compare(int64_t position, std::span<const float> logits) const;

  int64_t window_, vocab_, kept_ = 0;
  AlignedArray<float> logits_;  // its shape is [position][kept]
  // The ids have the shape [position][kept]; there are none if all tokens are kept, in their order.
  AlignedArray<int32_t> ids_;
  std::vector<double> normalizers_;  // each position has the log of the sum of all exponentials
  std::vector<double> rest_;         // each position has the probability of the tokens not kept
};

}  // namespace walsh
