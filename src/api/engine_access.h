// Gives the command and servers access to an engine beyond its public interface: opening with a
// recipe and threads of their own, and the model inside.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/load.h"
#include "base/thread_pool.h"
#include "walsh/engine.h"

namespace walsh {

struct OpenRequest {
  std::string path;
  const Recipe* recipe = nullptr;                 // compress a folder while loading it
  LoadOptions load;                               // its pool is ignored
  const GenerationOptions* generation = nullptr;  // checked before the weights are read
  const TemplateText* chat_template = nullptr;    // replaces the model's
  bool for_batches = false;                       // no context of its own until it is used
  // Names a smaller model that drafts, for so many texts together; empty: none.
  std::string draft = {};
  int64_t draft_texts = 1;
};

struct EngineAccess {
  static Engine open(std::unique_ptr<ThreadPool> pool, const OpenRequest& request);
  static const LoadedModel& model(const Engine& engine);
  // Returns the model, which the result keeps alive.
  static std::shared_ptr<const LoadedModel> share(const Engine& engine);
};

}  // namespace walsh
