// What the command and servers need of an engine beyond its public interface: opening it with a
// recipe and threads of their own, and the model in it.
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
  LoadOptions load;                               // without a pool
  const GenerationOptions* generation = nullptr;  // checked before the weights are read
  const TemplateText* chat_template = nullptr;    // in place of the model's
};

struct EngineAccess {
  static Engine open(std::unique_ptr<ThreadPool> pool, const OpenRequest& request);
  static const LoadedModel& model(const Engine& engine);
};

}  // namespace walsh
