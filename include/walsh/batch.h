// Continues many texts of one model together, as a server does with its requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "walsh/engine.h"
#include "walsh/error.h"

namespace walsh {

// Texts come and go at any time. One thread calls step() or run(), which evaluates a token of each
// text together with chunks of new prompts; any thread adds and cancels texts. A prompt reuses the
// cache of earlier texts with the same beginning.
//
// A stop request (walsh/stop.h) on the stepping thread ends all texts with `interrupted`.
// `keep_context` of GenerationOptions has no effect.
class TextBatch {
 public:
  // The callbacks of a text run on the stepping thread and delay all other texts. An exception ends
  // the text with that error.
  // OnText ends the text by returning false.
  using OnText = std::function<bool(std::string_view piece)>;
  // This is called exactly once, after the last OnText. `error` is null if the text succeeded;
  // otherwise it says why the text failed, and it is valid only during the call.
  using OnEnd = std::function<void(const GenerationResult& result, const Error* error)>;

  // Keeps the engine's weights alive. Throws usage for numbers out of range, and limit if memory
  // does not suffice.
  explicit TextBatch(const Engine& engine, const BatchOptions& options = {});
  ~TextBatch();
  TextBatch(const TextBatch&) = delete;
  TextBatch& operator=(const TextBatch&) = delete;

  // Returns how many positions a text may take, its prompt included.
  int64_t context() const;

  // This is thread-safe. Returns an id for cancel(). Throws usage for a wrong prompt or wrong
  // options, and limit if too many texts wait; no callback is called then.
  uint64_t add(std::span<const int32_t> prompt, const GenerationOptions& options, OnText on_text,
               OnEnd on_end);
  uint64_t add(std::string_view prompt, const GenerationOptions& options, OnText on_text,
               OnEnd on_end);
  // This is thread-safe. Ends the text before the next step with FinishReason::stopped, if it has
  // not ended.
  void cancel(uint64_t text);

  // Runs one step; returns false if there is nothing to do. An error ends the texts that it
  // concerns.
  bool step();
  // Runs steps until stop(), waiting while there is nothing to do; then cancels what is left.
  void run();
  void stop();  // any thread may call it

  // Adds all prompts, steps until they have ended, and returns their results in the same order.
  // Throws the error of the first prompt that failed. No other thread may step meanwhile.
  std::vector<GenerationResult> generate(std::span<const std::string> prompts,
                                         const GenerationOptions& options = {});
  // Does the same for prompts that are tokens. After each text, `on_end` is told how many have
  // ended.
  std::vector<GenerationResult> generate_tokens(std::span<const std::vector<int32_t>> prompts,
                                                const GenerationOptions& options = {},
                                                const std::function<void(size_t)>& on_end = {});

  // Returns the embeddings of texts as Engine::embed does, but evaluates the texts together. No
  // other thread may step meanwhile.
  std::vector<std::vector<float>> embed(std::span<const std::string> texts,
                                        const EmbeddingOptions& options = {});
  std::vector<std::vector<float>> embed_tokens(std::span<const std::vector<int32_t>> texts,
                                               const EmbeddingOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
