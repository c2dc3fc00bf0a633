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

// Says how a text is generated. Options that are not set come from the model's files
// (generation_config.json), and otherwise have llama.cpp's defaults (docs/sampling.md lists all
// sampling options with ranges and defaults).
struct GenerationOptions {
  int64_t max_tokens = 128;          // 0: only evaluate the prompt; -1: until the context is full
  std::optional<float> temperature;  // 0: greedy
  std::optional<int> top_k;          // sample from the k best tokens; 0 and -1: from all
  std::optional<float> top_p;        // from the fewest tokens with this total probability
  std::optional<float> min_p;  // from those with at least this share of the best one's probability
  // Divides positive logits of earlier tokens and multiplies negative ones.
  std::optional<float> repeat_penalty;
  std::optional<int> repeat_last_n;  // how many recent tokens it covers, prompt included; -1: all
  std::optional<float> presence_penalty, frequency_penalty;  // OpenAI's, for generated tokens
  // These are further samplers of llama.cpp, under its names.
  std::optional<float> typical_p;    // total probability of the most typical tokens
  std::optional<float> top_n_sigma;  // within n standard deviations of the best logit; -1: all
  // The temperature varies by this much: lower where the model is sure, by the exponent.
  std::optional<float> dynatemp_range, dynatemp_exponent;
  // XTC excludes the tokens above the threshold except the least probable one, with this
  // probability.
  std::optional<float> xtc_probability, xtc_threshold;
  std::optional<float> dry_multiplier, dry_base;  // against repeated sequences
  std::optional<int> dry_allowed_length, dry_penalty_last_n;
  std::optional<std::vector<std::string>> dry_sequence_breakers;  // default: line feed : " *
  std::string samplers;  // the steps in order, "penalties;top_k;..."; empty: llama.cpp's order
  std::vector<std::pair<int32_t, float>>
      logit_bias;                // token ids with the values to add to their logits
  std::optional<uint64_t> seed;  // default: random
  bool ignore_eos = false;       // continue after the end of the text
  // Speculates by prompt lookup: drafts tokens where the text repeats itself. The text is the same
  // on the CPU; on a GPU logits are rounded differently. With recurrent layers
  // EngineOptions::generation has to ask for it, too.
  bool lookup = false;
  int64_t max_drafted =
      -1;  // tokens that are drafted at once, also by EngineOptions::draft; -1: any
  // Stop strings in UTF-8, which are not part of the text; empty ones are ignored. Text that may be
  // the beginning of one is held back until that is decided.
  std::vector<std::string> stop;
  // Constrains the text by at most one of: a grammar in GBNF (llama.cpp's language), a JSON schema
  // (docs/structured_output.md).
  std::string grammar, json_schema;
  // These are the contents of image files (JPEG, PNG, WebP), one for each placeholder of an image
  // in the prompt, in their order. Chat templates write the placeholder for a part {"type":
  // "image"} of a message. Every prompt of a batch has all images. The model must have a vision
  // tower and be on the CPU.
  std::vector<std::string> images;
  // Reuses the cache of the common prefix of this prompt and the text before it, for conversations.
  // Coded keys and values of the prefix stay as they are, which can change what is generated.
  bool keep_context = false;
};

enum class FinishReason : uint8_t {
  stop_token,  // the model ended the text
  max_tokens,  // the limit was reached
  context_full,
  stopped,      // by the callback or a stop request (walsh/stop.h)
  stop_string,  // GenerationOptions::stop
};

struct GenerationResult {
  std::string text;
  FinishReason reason = FinishReason::max_tokens;
  std::string stop;                       // the stop string that ended the text, otherwise empty
  int64_t prompt_tokens = 0, tokens = 0;  // evaluated or cached; generated
  int64_t cached_tokens = 0;              // prompt tokens that were not evaluated again
  double prompt_seconds = 0, decode_seconds = 0;  // without the time of the callback
  int64_t drafted = 0, drafted_right = 0;         // drafted tokens, and those that were right
  int64_t decoded_tokens = 0;  // not counting the first, which comes with the prompt
  uint64_t seed = 0;           // the one in use
};

// Sets the limits of a TextBatch (walsh/batch.h).
struct BatchOptions {
  int64_t running = 16;         // most texts that are continued together
  int64_t waiting = 256;        // most texts that wait in addition
  int64_t context = 0;          // positions of a text with its prompt; 0: as in EngineOptions
  int64_t kept = 16;            // ended texts whose cache is kept for later prompts
  int64_t cache_positions = 0;  // of all texts together; 0: `running` times the context
};

struct EngineOptions {
  int threads = 0;      // 0: one per core
  int64_t context = 0;  // positions; 0: the model's maximum, at most 4096
  // Activations are "auto", "i8", "i8x2", "f16" (GPU), "f32" (CPU) or "lut" (CPU: pq3 by lookup
  // tables).
  std::string activations = "auto";
  std::string device = "auto";  // "cpu", "cuda", "cuda:N"; auto: a GPU if there is one
  // Older cached keys and values have these types: "f16", "q8_0", "q4_0", "tq3_0", "kt2", "kt3",
  // "kt4".
  std::string cache_keys = "f16", cache_values = "f16";
  int64_t cache_window = 32;  // at least this many recent positions stay f16
  uint64_t device_bytes = 0;  // limit of GPU memory in bytes; 0: all that is free
  // The GPU computes so many last layers, and the CPU the rest [as many as fit]; 0: the CPU alone.
  std::optional<int64_t> gpu_layers;
  // The CPU computes the experts of so many first layers [as few as possible].
  std::optional<int64_t> cpu_experts;
  std::optional<CompressOptions> compress;  // compress a checkpoint folder while loading
  // Names a smaller model with the same tokenizer, which drafts the tokens of all texts: they are
  // the same as without it, on a GPU but for rounding. "mtp" or "mtp:N": the model's own layer that
  // predicts further tokens, with at most N at once (CPU). Empty: none.
  std::string draft;
  // This is called with the tensors done, their total, and the next one's name; it may throw to
  // stop.
  std::function<void(size_t done, size_t count, const std::string& name)> progress;
  // Texts will be generated with these options, so that errors in them are reported before the
  // weights are read.
  std::optional<GenerationOptions> generation;
  // Plans GPU memory for a batch of this size. The engine then allocates a context of its own only
  // when one is used.
  std::optional<BatchOptions> batch;
};

struct PerplexityResult {
  double perplexity = 0, standard_error = 0;
  int64_t tokens = 0;  // scored
};

// Says how predictions differ from a reference's, as measured by `walsh eval --reference`.
struct DivergenceResult {
  double mean = 0, standard_error = 0;  // KL(reference || model) per token, in nats
  double same_top = 0;  // share of tokens for which both models have the same most probable token
  double perplexity = 0, reference_perplexity = 0;
  int64_t tokens = 0;  // scored
};

// Says how a text becomes an embedding. Options that are not set come from the files that
// sentence-transformers puts beside a checkpoint; without them the last token is taken and the
// embedding has unit length.
struct EmbeddingOptions {
  // It names the states of the text's tokens, behind the final norm, that are taken: "last",
  // "mean", "cls" (the first); empty: the model's.
  std::string pooling;
  std::optional<bool> normalize;  // to unit length
  int64_t dimensions = 0;         // the first so many values, of unit length again; 0: all
};

// A model's prediction of a token after the tokens before it.
struct TokenPrediction {
  double logprob = 0;  // natural logarithm
  bool best = false;   // no other token is more probable
};

// An Engine is an open model. It is not thread-safe. Long operations stop early on request
// (walsh/stop.h).
class Engine {
 public:
  // Opens a walsh file or a Hugging Face folder. Throws Error naming file, tensor and reason.
  static Engine open(const std::string& path, const EngineOptions& options = {});

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  int64_t vocab_size() const;
  int64_t hidden_size() const;  // values of an embedding
  int64_t context() const;
  double bits_per_weight() const;  // of the linear weights
  std::string type() const;        // of most linear weights
  std::string device() const;      // "cpu", "cuda:0"
  // Returns what is worth knowing about the model but no error; each sentence names the file.
  const std::vector<std::string>& notes() const;

  std::vector<int32_t> encode(std::string_view text, bool add_special = true) const;
  // Tokenizes a prompt as generate() does: with special tokens; an empty prompt becomes BOS.
  std::vector<int32_t> encode_prompt(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const;

  // Applies the model's chat template to a conversation, a JSON list of objects with "role" and
  // "content". The prompt contains the special tokens that the template writes, so encode it with
  // add_special = false. Throws usage if the model has no template, bad_input for a conversation
  // that the template rejects.
  std::string chat_prompt(std::string_view messages, bool add_generation_prompt = true) const;
  bool has_chat_template() const;
  // Returns why the model takes no images; empty if it does.
  const std::string& missing_images() const;

  // Returns the logits [vocab_size] after the last of `tokens`, which start a new sequence.
  std::vector<float> logits(std::span<const int32_t> tokens);
  // Returns the logits after each token from index `first` on, [tokens - first][vocab_size].
  std::vector<float> all_logits(std::span<const int32_t> tokens, int64_t first = 0);
  // Returns the log-probabilities of tokens `first`, first + 1, ..., given the tokens before each.
  // `first` is at least 1, because the first token has no prediction.
  std::vector<TokenPrediction> logprobs(std::span<const int32_t> tokens, int64_t first = 1);

  // Continues `prompt` until a stop token, max_tokens or the end of the context. `on_text` receives
  // the new text piece by piece as complete UTF-8; returning false stops without another call.
  // Throws usage for options out of range and for a prompt that does not fit into the context.
  GenerationResult generate(std::string_view prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  // Returns the same for the tokens of a prompt (encode_prompt).
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});

  // Returns the embeddings of texts, which are tokenized with special tokens, or of the tokens of
  // texts, one after the other (TextBatch takes many together). Throws usage for options out of
  // range and for a text without tokens or longer than the context.
  std::vector<std::vector<float>> embed(std::span<const std::string> texts,
                                        const EmbeddingOptions& options = {});
  std::vector<std::vector<float>> embed_tokens(std::span<const std::vector<int32_t>> texts,
                                               const EmbeddingOptions& options = {});

  // Perplexity of a text in windows of `ctx` tokens, of which the second half is scored; chunks =
  // 0: all windows. BOS replaces the first token of a window if the tokenizer puts BOS before a
  // text.
  PerplexityResult perplexity(std::string_view text, int64_t ctx = 512, int64_t chunks = 0);
  // Returns the divergence from `reference` on the same windows. Throws usage if its tokenizer
  // differs.
  DivergenceResult kl_divergence(const Engine& reference, std::string_view text, int64_t ctx = 512,
                                 int64_t chunks = 0);

 private:
  friend struct EngineAccess;  // for the command and servers
  struct Impl;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A session is a separate context that shares an engine's weights, which it keeps alive, for
// example one per conversation. The engine, its sessions and its batches are not thread-safe
// together: only one of them may be in use at a time.
class TextSession {
 public:
  // `context` is a number of positions; 0: as the engine's. Throws limit if memory does not
  // suffice.
  explicit TextSession(const Engine& engine, int64_t context = 0);
  TextSession(TextSession&&) noexcept;
  TextSession& operator=(TextSession&&) noexcept;
  ~TextSession();

  int64_t context() const;  // positions
  // Returns the tokens in the context: prompts and texts so far.
  const std::vector<int32_t>& tokens() const;
  // Does what Engine::generate does, but evaluates only the part of the prompt that differs from
  // tokens().
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
