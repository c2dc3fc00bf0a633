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
  // At most this many tokens are generated; 0: the prompt is only evaluated; -1: the text goes on
  // until the context is full.
  int64_t max_tokens = 128;
  std::optional<float> temperature;  // Logits are divided by it; 0: the best token is taken.
  std::optional<int> top_k;          // The k best tokens are kept; 0 and -1: all.
  std::optional<float> top_p;        // The fewest tokens with this total probability are kept.
  // Tokens with at least this share of the best one's probability are kept.
  std::optional<float> min_p;
  // Divides positive logits of earlier tokens and multiplies negative ones.
  std::optional<float> repeat_penalty;
  // It covers this many recent tokens, prompt included; -1: all.
  std::optional<int> repeat_last_n;
  // OpenAI's penalties hold for generated tokens.
  std::optional<float> presence_penalty, frequency_penalty;
  // These are further samplers of llama.cpp, under its names.
  std::optional<float> typical_p;  // The most typical tokens with this total probability are kept.
  // Tokens within so many standard deviations of the best logit are kept; -1: all.
  std::optional<float> top_n_sigma;
  // The temperature varies by this much: lower where the model is sure, by the exponent.
  std::optional<float> dynatemp_range, dynatemp_exponent;
  // XTC excludes the tokens above the threshold except the least probable one, with this
  // probability.
  std::optional<float> xtc_probability, xtc_threshold;
  // DRY lowers the logits of tokens that would continue a repeated sequence.
  std::optional<float> dry_multiplier, dry_base;
  std::optional<int> dry_allowed_length, dry_penalty_last_n;
  // These texts end a sequence; the default has line feed, colon, quotation mark and asterisk.
  std::optional<std::vector<std::string>> dry_sequence_breakers;
  // Names the sampling steps in their order, "penalties;top_k;..."; empty: llama.cpp's order.
  std::string samplers;
  // Token ids have values that are added to their logits.
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;  // Without a seed a random one is taken.
  bool ignore_eos = false;       // If true, the text continues after a token that ends it.
  // Speculates by prompt lookup: drafts tokens where the text repeats itself. The text is the same
  // on the CPU; on a GPU logits are rounded differently. With recurrent layers
  // EngineOptions::generation has to ask for it, too.
  bool lookup = false;
  // At most this many tokens are drafted at once, also by EngineOptions::draft; -1: any number.
  int64_t max_drafted = -1;
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
  stop_token,  // The model ended the text.
  max_tokens,  // The limit was reached.
  context_full,
  stopped,      // The callback or a stop request (walsh/stop.h) ended the text.
  stop_string,  // One of GenerationOptions::stop ended the text.
};

struct GenerationResult {
  std::string text;
  FinishReason reason = FinishReason::max_tokens;
  std::string stop;           // This stop string ended the text; empty: none did.
  int64_t prompt_tokens = 0;  // The prompt has this many tokens.
  int64_t tokens = 0;         // The text has this many tokens.
  int64_t cached_tokens = 0;  // This many tokens of the prompt were not evaluated again.
  double prompt_seconds = 0, decode_seconds = 0;  // They leave out the time of the callback.
  // So many tokens were drafted, and so many of these were right.
  int64_t drafted = 0, drafted_right = 0;
  int64_t decoded_tokens = 0;  // The first token is not counted, because the prompt gives it.
  uint64_t seed = 0;           // The text was drawn with this seed.
};

// Sets the limits of a TextBatch (walsh/batch.h).
struct BatchOptions {
  int64_t running = 16;   // At most this many texts are continued together.
  int64_t waiting = 256;  // At most this many texts wait in addition.
  // A text with its prompt has at most this many positions; 0: as in EngineOptions.
  int64_t context = 0;
  int64_t kept = 16;  // The cache of this many ended texts is kept for later prompts.
  // All texts together have at most this many positions; 0: `running` times the context.
  int64_t cache_positions = 0;
};

struct EngineOptions {
  int threads = 0;  // So many threads compute; 0: one per core.
  // The context has this many positions; 0: the model's maximum, at most 4096.
  int64_t context = 0;
  // Activations are "auto", "i8", "i8x2", "f16" (GPU), "f32" (CPU) or "lut" (CPU: pq3 by lookup
  // tables).
  std::string activations = "auto";
  // The device is "cpu", "cuda", "cuda:N" or "auto", which takes a GPU if there is one.
  std::string device = "auto";
  // Older cached keys and values have these types: "f16", "q8_0", "q4_0", "tq3_0", "kt2", "kt3",
  // "kt4".
  std::string cache_keys = "f16", cache_values = "f16";
  int64_t cache_window = 32;  // At least this many recent positions stay f16.
  uint64_t device_bytes =
      0;  // At most this much GPU memory is taken, in bytes; 0: all that is free.
  // The GPU computes so many last layers, and the CPU the rest; 0: the CPU alone computes. Without
  // a number the GPU has as many layers as fit.
  std::optional<int64_t> gpu_layers;
  // The CPU computes the experts of so many first layers; without a number, of as few as possible.
  std::optional<int64_t> cpu_experts;
  std::optional<CompressOptions> compress;  // A checkpoint folder is compressed while it is loaded.
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
  int64_t tokens = 0;  // So many tokens were scored.
};

// Says how predictions differ from a reference's, as measured by `walsh eval --reference`.
struct DivergenceResult {
  // These are the mean over tokens of KL(reference || model), in nats, and its standard error.
  double mean = 0, standard_error = 0;
  // Both models have the same most probable token for this share of tokens.
  double same_top = 0;
  double perplexity = 0, reference_perplexity = 0;
  int64_t tokens = 0;  // So many tokens were scored.
};

// Says how a text becomes an embedding. Options that are not set come from the files that
// sentence-transformers puts beside a checkpoint; without them the last token is taken and the
// embedding has unit length.
struct EmbeddingOptions {
  // Says which states of the text's tokens, after the final norm, are taken: "last", "mean" or
  // "cls" (the first); empty: what the model's files say.
  std::string pooling;
  std::optional<bool> normalize;  // If true, the embedding has unit length.
  // The first so many values are taken, and have unit length again; 0: all are taken.
  int64_t dimensions = 0;
};

// Says how a model predicted a token from the tokens before it.
struct TokenPrediction {
  double logprob = 0;  // This is the natural logarithm of its probability.
  bool best = false;   // If true, no other token is more probable.
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
  int64_t hidden_size() const;  // An embedding has this many values.
  int64_t context() const;
  // Returns the bits per weight of linear layers, with their scales.
  double bits_per_weight() const;
  std::string type() const;    // Returns the type of most weights of linear layers.
  std::string device() const;  // Returns "cpu" or, for example, "cuda:0".
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

  // Returns the perplexity of a text in windows of `ctx` tokens, of which the second half is
  // scored. `chunks` windows are measured; 0: all. BOS replaces the first token of a window if the
  // tokenizer puts BOS before a text.
  PerplexityResult perplexity(std::string_view text, int64_t ctx = 512, int64_t chunks = 0);
  // Returns the divergence from `reference` on the same windows. Throws usage if its tokenizer
  // differs.
  DivergenceResult kl_divergence(const Engine& reference, std::string_view text, int64_t ctx = 512,
                                 int64_t chunks = 0);

 private:
  friend struct EngineAccess;  // The command and servers use it.
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

  int64_t context() const;  // Returns a number of positions.
  // Returns the tokens in the context: prompts and texts so far.
  const std::vector<int32_t>& tokens() const;
  // Does what Engine::generate does, but evaluates only the part of the prompt that differs from
  // tokens().
  GenerationResult generate(std::string_view prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options = {},
                            const std::function<bool(std::string_view)>& on_text = {});
  void reset();  // Forgets its tokens.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
