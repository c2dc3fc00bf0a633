// Handles `walsh quantize MODEL` without a type: lists types with cost and quality for this model
// and machine.
#pragma once

#include <string>

#include "base/thread_pool.h"

namespace walsh::cli {

// Lists the common types with file size, whether they fit, expected divergence and speed, and the
// command for the best one that fits; as JSON with `json`. Throws as open_compressor.
std::string type_choice(const std::string& model, bool json, ThreadPool& pool);

// Returns "MODEL-TYPE.gguf", the suggested name of the output.
std::string output_name(const std::string& model, const std::string& type);

}  // namespace walsh::cli
