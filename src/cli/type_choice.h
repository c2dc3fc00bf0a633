// Handles `walsh quantize MODEL` without a type: lists types with cost and quality for this model
// and machine.
#pragma once

#include <string>

#include "base/thread_pool.h"

namespace walsh::cli {

// Lists the common types with their file size, whether they fit, the expected divergence and speed,
// and the command for the best one that fits. With `json` the list is JSON. Throws as
// open_compressor.
std::string type_choice(const std::string& model, bool json, ThreadPool& pool);

// Returns the suggested name of the output, "MODEL-TYPE.gguf".
std::string output_name(const std::string& model, const std::string& type);

}  // namespace walsh::cli
