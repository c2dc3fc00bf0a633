// A model with its tokenizer, ready to run: tokenize, score, generate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "walsh/quantizer.h"

namespace walsh {

struct EngineOptions {
  int threads = 0;      // 0: one per core
  int64_t context = 0;  // positions; 0: the model's maximum, at most 4096
  // "auto", "i8", "i8x2", "f16" (GPU), "f32" (CPU), "lut" (CPU: pq3 by look-up)
  std::string activations = "auto";
  std::string device = "auto";  // "cpu", "cuda", "cuda:N"; auto: a GPU if there is one
  // Storage of older keys and values: "f16", "q8_0", "q4_0", "tq3_0", "kt2", "kt3", "kt4".
  std::string cache_keys = "f16", cache_values = "f16";
  int64_t cache_window = 32;  // at least so many of the latest positions are f16 whatever the types
  std::optional<CompressOptions> compress;  // compress a checkpoint folder while loading it
};

// Defaults as in llama.cpp, the penalty's reach as in transformers; temperature 0 is greedy.
struct GenerationOptions {
  int64_t max_tokens = 128;  // 0: none, the prompt is only evaluated; -1: until the context is full
  float temperature = 0.8f, top_p = 0.95f, min_p = 0.05f, repeat_penalty = 1;
  int top_k = 40;
  int repeat_last_n = -1;  // latest tokens, also of the prompt, that the penalty is for; -1: all
  uint64_t seed = 42;
};

struct PerplexityResult {
  double perplexity = 0, standard_error = 0;
  int64_t tokens = 0;  // scored
};

// Not for use by several threads at once. What takes long ends early on request (walsh/stop.h).
class Engine {
 public:
  // Opens a walsh file or a Hugging Face folder. Throws Error naming file, tensor and reason.
  static Engine open(const std::string& path, const EngineOptions& options = {});

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  int64_t vocab_size() const;
  int64_t context() const;
  double bits_per_weight() const;  // of the linear weights
  // What one should know of the model and what is no error; sentences that name the file.
  const std::vector<std::string>& notes() const;

  std::vector<int32_t> encode(std::string_view text, bool add_special = true) const;
  std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const;

  // Logits [vocab_size] after the last of `tokens`, which start a new sequence.
  std::vector<float> logits(std::span<const int32_t> tokens);

  // Continues `prompt` until a stop token, max_tokens or the end of the context; returns the new
  // text. `on_text` receives it piece by piece as complete UTF-8; false stops, and nothing comes
  // after it.
  std::string generate(std::string_view prompt, const GenerationOptions& options = {},
                       const std::function<bool(std::string_view)>& on_text = {});

  // Perplexity of a text in windows of `ctx` tokens, the second half of each scored; chunks = 0:
  // all. BOS stands for the first token of a window if the tokenizer puts it before a text.
  PerplexityResult perplexity(std::string_view text, int64_t ctx = 512, int64_t chunks = 0);

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
