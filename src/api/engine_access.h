// Gives the command and servers access to an engine beyond its public interface. They open it with
// a recipe and threads of their own, and use the model inside.
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
  const Recipe* recipe = nullptr;                 // it compresses a folder while loading it
  LoadOptions load;                               // its pool is ignored
  const GenerationOptions* generation = nullptr;  // they are checked before the weights are read
  const TemplateText* chat_template = nullptr;    // it replaces the model's
  // The engine has no context of its own until it is used.
  bool for_batches = false;
  // Names a smaller model, which drafts for `draft_texts` texts together; empty means none.
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
