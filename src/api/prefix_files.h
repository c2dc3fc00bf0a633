// Opens the folder in which prefixes of a model survive a restart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "api/load.h"
#include "schedule/prefix_store.h"

namespace walsh {

// Returns the folder that one of several models has in `folder`, which its name can be read from.
std::string prefix_folder(const std::string& folder, const std::string& model);

// Returns the store for a scheduler with `positions` positions (SchedulerOptions). Throws usage for
// a model of which sessions cannot be saved, and what PrefixStore throws.
std::unique_ptr<PrefixStore> open_prefix_files(const LoadedModel& model, int64_t positions,
                                               const std::string& folder, uint64_t bytes,
                                               std::function<void(const std::string&)> note);

}  // namespace walsh
