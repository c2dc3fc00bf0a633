// Many texts of one model, continued together: what a server does with the requests that it has.
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
// text and pieces of new prompts together; any thread adds texts and cancels them. Prompts that
// begin like earlier texts take over what is known of them.
//
// A request to stop (walsh/stop.h) on the thread that steps ends all texts with `interrupted`. Of
// GenerationOptions `lookup` and `keep_context` have no effect.
class TextBatch {
 public:
  // The callbacks of a text are called on the thread that steps, which all texts wait for. One that
  // throws ends its text with that error.
  using OnText = std::function<bool(std::string_view piece)>;  // false: no more is wanted
  // Called once, last. `error`: why the text failed, valid during the call; null if it did not.
  using OnEnd = std::function<void(const GenerationResult& result, const Error* error)>;

  // It keeps the engine's weights alive. Throws usage for numbers out of range, limit if the memory
  // does not suffice.
  explicit TextBatch(const Engine& engine, const BatchOptions& options = {});
  ~TextBatch();
  TextBatch(const TextBatch&) = delete;
  TextBatch& operator=(const TextBatch&) = delete;

  int64_t context() const;  // positions of a text with its prompt, at most

  // From any thread. Returns a number for cancel(). Throws usage for a prompt or options that are
  // wrong, limit if too many texts wait; then no callback is called.
  uint64_t add(std::span<const int32_t> prompt, const GenerationOptions& options, OnText on_text,
               OnEnd on_end);
  uint64_t add(std::string_view prompt, const GenerationOptions& options, OnText on_text,
               OnEnd on_end);
  // From any thread: the text ends before the next step with FinishReason::stopped, if it has not
  // ended.
  void cancel(uint64_t text);

  // One step; false if there is nothing to do. What fails ends the texts that it was for.
  bool step();
  // Steps until stop(), waiting where there is nothing to do; then cancels what is left.
  void run();
  void stop();  // from any thread

  // Adds all prompts, steps until they have ended, and returns their texts in the same order.
  // Throws what the first of them failed with. Not while another thread steps.
  std::vector<GenerationResult> generate(std::span<const std::string> prompts,
                                         const GenerationOptions& options = {});
  // The same behind the tokens of prompts. `on_end` is told how many have ended, after each.
  std::vector<GenerationResult> generate_tokens(std::span<const std::vector<int32_t>> prompts,
                                                const GenerationOptions& options = {},
                                                const std::function<void(size_t)>& on_end = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
