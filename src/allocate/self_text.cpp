#include "allocate/self_text.h"

#include "base/random.h"
#include "generate/sampler.h"
#include "model/session.h"

namespace walsh {

std::vector<int32_t> write_self_text(const Model& model, const SelfTextOptions& options,
                                     const std::function<void(int64_t)>& on_token) {
  const auto windows = static_cast<size_t>(options.windows);
  SessionOptions side_by_side;
  side_by_side.max_positions = options.ctx;
  side_by_side.sequences = options.windows;
  Session session(model, side_by_side);
  Random starts(options.seed);
  std::vector<Sampler> samplers;
  std::vector<int32_t> last(windows);
  for (size_t w = 0; w < windows; ++w) {
    SamplerOptions plain;  // the model's own distribution, nothing cut off
    plain.temperature = 1;
    plain.top_k = 0;
    plain.top_p = 1;
    plain.min_p = 0;
    plain.seed = options.seed * 1'000'003 + w;
    samplers.emplace_back(plain);
    const auto random =
        static_cast<int32_t>(starts.below(static_cast<uint64_t>(model.config.vocab)));
    last[w] = options.bos >= 0 ? options.bos : random;
  }
  std::vector<int32_t> text(windows * static_cast<size_t>(options.ctx));
  for (int64_t i = 0; i < options.ctx; ++i) {
    if (on_token) on_token(i);
    for (size_t w = 0; w < windows; ++w)
      text[w * static_cast<size_t>(options.ctx) + static_cast<size_t>(i)] = last[w];
    if (i + 1 == options.ctx) break;
    session.decode(last, [&](int64_t w, std::span<const float> logits) {
      last[static_cast<size_t>(w)] = samplers[static_cast<size_t>(w)].sample(logits);
    });
  }
  return text;
}

}  // namespace walsh
