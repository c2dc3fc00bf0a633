// Defines the flags of `walsh serve` for several models behind one port, and reads them.
#pragma once

#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/model_options.h"
#include "serve/model_pool.h"

namespace walsh::cli {

constexpr const char* kKeepAlive = "5m";

struct ServedModels {
  std::vector<std::string> paths;    // these are MODEL...
  std::vector<std::string> folders;  // these are given by --models-dir
  // All loaded models together may take this much; an empty text means what is available.
  std::string memory;
  std::string keep_alive = kKeepAlive;

  void add_to(Command& command);
  // Returns whether a single model is served, which is loaded at once and stays. Throws usage if
  // there is none at all.
  bool single() const;
  // Prints a note if flags are given that have no effect on a single model.
  void note_for_single() const;
  // Returns all models, also those of the folders. Throws usage if there are none.
  std::vector<ModelPlace> places() const;
  // Returns the options that the flags decide for models on this device; throws usage.
  PoolOptions pool_options(const Device& device) const;
};

// Throws usage for options that cannot be had with several models.
void refuse_for_several(const ModelOptions& options, const std::string& alias);

}  // namespace walsh::cli
