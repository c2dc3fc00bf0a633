// A sequence of a model that texts are generated in, and what is known to be in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "api/collected_text.h"
#include "api/load.h"
#include "model/session.h"
#include "walsh/engine.h"

namespace walsh {

class TextContext {
 public:
  // `model` outlives it. Throws as Session.
  TextContext(const LoadedModel& model, const SessionOptions& use);

  int64_t capacity() const { return session_.capacity(); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // The session, empty.
  Session& empty();

  // As Engine::generate; with options.keep_context only what differs from tokens() is evaluated.
  GenerationResult generate(std::span<const int32_t> prompt, const GenerationOptions& options,
                            const TextCallback& on_text);

 private:
  int64_t keep(std::span<const int32_t> prompt);

  const LoadedModel& model_;
  Session session_;
  std::vector<int32_t> tokens_;
};

}  // namespace walsh
