#include "allocate/self_text.h"

#include <algorithm>

#include "base/aligned.h"
#include "base/random.h"
#include "generate/sampler.h"
#include "model/session.h"

namespace walsh {
namespace {

SamplerOptions plain_options(uint64_t seed) {  // they cut nothing off the model's distribution
  SamplerOptions plain;
  plain.temperature = 1;
  plain.top_k = 0;
  plain.top_p = 1;
  plain.min_p = 0;
  plain.seed = seed;
  return plain;
}

}  // namespace

std::vector<int32_t> write_self_text(const Model& model, const SelfTextOptions& options,
                                     const std::function<void(int64_t, int64_t)>& progress) {
  Random starts(options.seed);
  std::vector<int32_t> text(static_cast<size_t>(options.windows * options.ctx));
  for (int64_t first = 0; first < options.windows; first += kSideBySide) {
    const int64_t windows = std::min(kSideBySide, options.windows - first);
    SessionOptions side_by_side;
    side_by_side.max_positions = options.ctx;
    side_by_side.sequences = windows;
    Session session(model, side_by_side);
    for (int64_t w = 1; w < windows; ++w)
      session.open();
    std::vector<Sampler> samplers;
    std::vector<int32_t> last, chosen(static_cast<size_t>(windows));
    const int64_t vocab = model.config.vocab;
    AlignedArray<float> all_logits(static_cast<size_t>(windows * vocab));
    for (int64_t w = first; w < first + windows; ++w) {
      samplers.emplace_back(plain_options(options.seed * 1'000'003 + static_cast<uint64_t>(w)));
      const auto random =
          static_cast<int32_t>(starts.below(static_cast<uint64_t>(model.config.vocab)));
      last.push_back(options.bos >= 0 ? options.bos : random);
    }
    for (int64_t i = 0; i < options.ctx; ++i) {
      if (progress) progress(first * options.ctx + i * windows, options.windows * options.ctx);
      for (int64_t w = 0; w < windows; ++w)
        text[static_cast<size_t>((first + w) * options.ctx + i)] = last[static_cast<size_t>(w)];
      if (i + 1 == options.ctx) break;
      std::vector<SequenceTokens> batch;
      for (const int32_t& token : last)
        batch.push_back({static_cast<int64_t>(batch.size()), {&token, 1}});
      session.evaluate(batch, [&](size_t w, int64_t, std::span<const float> logits) {
        std::copy(logits.begin(), logits.end(),
                  all_logits.data() + static_cast<int64_t>(w) * vocab);
      });
      // Drawing from a large vocabulary on one thread takes longer than a GPU needs for a token of
      // all windows.
      model.pool().for_each(windows, [&](int64_t w) {
        const std::span logits(all_logits.data() + w * vocab, static_cast<size_t>(vocab));
        chosen[static_cast<size_t>(w)] = samplers[static_cast<size_t>(w)].sample(logits);
      });
      last = chosen;
    }
  }
  return text;
}

}  // namespace walsh
