// Defines the flags of `walsh serve` for prefixes that survive a restart, and for texts longer than
// their context.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "api/load.h"
#include "cli/flags.h"
#include "schedule/prefix_store.h"
#include "serve/service.h"

namespace walsh::cli {

class PrefixOptions {
 public:
  // Adds --cache-dir and --cache-size.
  void add_to(const FlagGroup& group);
  // Makes the folder, if there is to be one. Throws what PrefixStore throws, and usage for a size
  // that is none.
  void prepare() const;
  // Returns what opens the files of a model with so many positions: those of `name`, if it is one
  // of several models. It is empty if there are to be no files.
  std::function<std::unique_ptr<PrefixStore>(const LoadedModel& model)> opener(
      int64_t positions, const std::string& name = "") const;

 private:
  uint64_t bytes() const;

  std::string folder_, size_;
};

// Adds --context-shift and --keep.
void add_shift_options(const FlagGroup& group, ServiceOptions& options);

}  // namespace walsh::cli
