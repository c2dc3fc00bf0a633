// A model with its tokenizer, ready to run: tokenize, score, generate.
//
//     #include <walsh/engine.h>
//     #include <walsh/error.h>
//
//     #include <cstdio>
//     #include <string_view>
//
//     int main(int argc, char** argv) {
//       if (argc != 3) return 2;
//       try {
//         walsh::Engine engine = walsh::Engine::open(argv[1]);
//         walsh::GenerationOptions options;
//         options.max_tokens = 16;
//         options.temperature = 0;
//         engine.generate(argv[2], options, [](std::string_view piece) {
//           return std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
//         });
//       } catch (const walsh::Error& e) {
//         std::fprintf(stderr, "%s\n", e.what());
//         return walsh::exit_status(e.code());
//       }
//     }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "walsh/quantizer.h"

namespace walsh {

// How a text is continued. What is not given is what the model's files say
// (generation_config.json), and where they say nothing what llama.cpp does (docs/sampling.md has
// all options of choosing tokens with their ranges and defaults).
struct GenerationOptions {
  int64_t max_tokens = 128;  // 0: none, the prompt is only evaluated; -1: until the context is full
  std::optional<float> temperature;     // 0: always the best token
  std::optional<int> top_k;             // of the k best tokens; 0 and -1: of all
  std::optional<float> top_p;           // of the fewest best with this probability together
  std::optional<float> min_p;           // of those with this share of the best one's
  std::optional<float> repeat_penalty;  // divides the positive logits of earlier tokens
  std::optional<int> repeat_last_n;     // latest tokens that it is for, also of the prompt; -1: all
  std::optional<float> presence_penalty, frequency_penalty;  // as OpenAI's, for generated tokens
  // What llama.cpp has besides, under its names.
  std::optional<float> typical_p;    // of the fewest with this probability whose surprise is usual
  std::optional<float> top_n_sigma;  // of those within so many deviations of the best; -1: of all
  std::optional<float> xtc_probability, xtc_threshold;  // of dropping the best above the threshold
  std::optional<float> dry_multiplier, dry_base;        // against sequences that were there before
  std::optional<int> dry_allowed_length, dry_penalty_last_n;
  std::optional<std::vector<std::string>> dry_sequence_breakers;  // [line feed : " *]
  std::string samplers;  // the steps in their order, "penalties;top_k;..."; empty: llama.cpp's
  std::vector<std::pair<int32_t, float>>
      logit_bias;                // token ids, and what is added to their logits
  std::optional<uint64_t> seed;  // [drawn]
  bool ignore_eos = false;       // go on after the end of the text
  // Several tokens are evaluated at once where the text repeats itself: the same text, sooner if it
  // does. On a GPU logits are then rounded differently. Without effect with coded keys and values.
  bool lookup = false;
  // Strings of UTF-8 that end the text and are not part of it; empty ones are ignored. What may be
  // the beginning of one is held back until it is clear.
  std::vector<std::string> stop;
  // What the text has to match, one of them or none: a grammar in GBNF (llama.cpp's language), a
  // JSON schema (docs/structured_output.md).
  std::string grammar, json_schema;
  // What the prompt and the text before it have in common at their beginnings is not evaluated
  // again: for conversations. Coded keys and values of it stay as they are, which can change what
  // is generated.
  bool keep_context = false;
};

enum class FinishReason : uint8_t {
  stop_token,  // the model ended the text
  max_tokens,  // as many as were asked for
  context_full,
  stopped,      // by the callback or by a request (walsh/stop.h)
  stop_string,  // GenerationOptions::stop
};

struct GenerationResult {
  std::string text;
  FinishReason reason = FinishReason::max_tokens;
  std::string stop;                               // the stop string that ended it, otherwise empty
  int64_t prompt_tokens = 0, tokens = 0;          // that were read, that were generated
  int64_t cached_tokens = 0;                      // of the prompt, not evaluated again
  double prompt_seconds = 0, decode_seconds = 0;  // without the callback
  int64_t drafted = 0, drafted_right = 0;         // tokens that were looked up
  int64_t decoded_tokens = 0;  // evaluated one by one; the first comes with the prompt
  uint64_t seed = 0;           // that was used
};

// How many texts a TextBatch (walsh/batch.h) continues, and what it keeps of them.
struct BatchOptions {
  int64_t running = 16;         // texts that are continued together, at most
  int64_t waiting = 256;        // texts that may wait besides
  int64_t context = 0;          // positions of a text with its prompt; 0: as EngineOptions
  int64_t kept = 16;            // ended texts whose keys and values are kept for later prompts
  int64_t cache_positions = 0;  // of all texts together; 0: `running` times those of a text
};

struct EngineOptions {
  int threads = 0;      // 0: one per core
  int64_t context = 0;  // positions; 0: the model's maximum, at most 4096
  // "auto", "i8", "i8x2", "f16" (GPU), "f32" (CPU), "lut" (CPU: pq3 by look-up)
  std::string activations = "auto";
  std::string device = "auto";  // "cpu", "cuda", "cuda:N"; auto: a GPU if there is one
  // Storage of older keys and values: "f16", "q8_0", "q4_0", "tq3_0", "kt2", "kt3", "kt4".
  std::string cache_keys = "f16", cache_values = "f16";
  int64_t cache_window = 32;  // at least so many of the latest positions are f16 whatever the types
  uint64_t device_bytes = 0;  // at most so much memory of the GPU; 0: all that is free
  // Of the last so many layers the GPU computes all, the CPU the others [as many as fit]; 0: the
  // CPU alone.
  std::optional<int64_t> gpu_layers;
  // Of so many of the first layers the CPU has the experts [as few as gpu_layers lets].
  std::optional<int64_t> cpu_experts;
  std::optional<CompressOptions> compress;  // compress a checkpoint folder while loading it
  // Tensors done, of all, and the next one's name; may throw to stop.
  std::function<void(size_t done, size_t count, const std::string& name)> progress;
  // What texts will be generated with, so that what is wrong with it is told before the weights are
  // read.
  std::optional<GenerationOptions> generation;
  // The engine is for a batch of this size: the memory of a GPU is planned for it, and the engine
  // allocates a context of its own only if one is asked for.
  std::optional<BatchOptions> batch;
};

struct PerplexityResult {
  double perplexity = 0, standard_error = 0;
  int64_t tokens = 0;  // scored
};

// How a model's predictions differ from a reference's, as `walsh eval --reference` measures it.
struct DivergenceResult {
  double mean = 0, standard_error = 0;  // KL(reference || model) per token, in nats
  double same_top = 0;                  // share of tokens whose best one is the same
  double perplexity = 0, reference_perplexity = 0;
  int64_t tokens = 0;  // scored
};

// What a model says of a token behind those in front of it.
struct TokenPrediction {
  double logprob = 0;  // natural logarithm
  bool best = false;   // no other token is more probable
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
  std::string type() const;        // of most of those weights
  std::string device() const;      // "cpu", "cuda:0"
  // What one should know of the model and what is no error; sentences that name the file.
  const std::vector<std::string>& notes() const;

  std::vector<int32_t> encode(std::string_view text, bool add_special = true) const;
  // What generate() makes of a prompt: with special tokens; an empty one begins with BOS.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const;

  // The prompt for a conversation by the model's chat template: a JSON list of objects with "role"
  // and "content". It begins with the special tokens that the template writes, so it is encoded
  // with add_special = false. Throws usage if the model has no template, bad_input for a
  // conversation that the template refuses.
  std::string chat_prompt(std::string_view messages, bool add_generation_prompt = true) const;
  bool has_chat_template() const;

  // Logits [vocab_size] after the last of `tokens`, which start a new sequence.
  std::vector<float> logits(std::span<const int32_t> tokens);
  // The same after each token from index `first` on, [tokens - first][vocab_size].
  std::vector<float> all_logits(std::span<const int32_t> tokens, int64_t first = 0);
  // The log-probabilities of tokens `first`, first + 1, ... behind those in front of them; the
  // first token has none, so first is at least 1.
  std::vector<TokenPrediction> logprobs(std::span<const int32_t> tokens, int64_t first = 1);

  // Continues `prompt` until a stop token, max_tokens or the end of the context. `on_text` receives
  // the new text piece by piece as complete UTF-8; false stops, and nothing comes after it. Throws
  // usage for options out of range and for a prompt that does not fit into the context.
  GenerationResult generate(std::string_view prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  // The same behind the tokens of a prompt (encode_prompt).
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});

  // Perplexity of a text in windows of `ctx` tokens, the second half of each scored; chunks = 0:
  // all. BOS stands for the first token of a window if the tokenizer puts it before a text.
  PerplexityResult perplexity(std::string_view text, int64_t ctx = 512, int64_t chunks = 0);
  // The divergence from `reference` on the same windows. Throws usage if its tokenizer differs.
  DivergenceResult kl_divergence(const Engine& reference, std::string_view text, int64_t ctx = 512,
                                 int64_t chunks = 0);

 private:
  friend struct EngineAccess;  // for the command and servers
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A context of its own on the weights of an engine, which it keeps alive: for conversations, of
// which an application may have many. The engine, its sessions and its batches take turns: one
// thread at a time uses any of them.
class TextSession {
 public:
  // `context`: positions; 0: those of the engine. Throws limit if the memory does not suffice.
  explicit TextSession(const Engine& engine, int64_t context = 0);
  TextSession(TextSession&&) noexcept;
  TextSession& operator=(TextSession&&) noexcept;
  ~TextSession();

  int64_t context() const;  // positions
  // What is evaluated already: prompts and texts of the last call.
  const std::vector<int32_t>& tokens() const;
  // As Engine::generate; of the prompt only what differs from tokens() is evaluated.
  GenerationResult generate(std::string_view prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  void reset();  // forgets its tokens

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
