// `walsh quantize MODEL` without a type: what types cost and give for this model and machine.
#pragma once

#include <string>

#include "base/thread_pool.h"

namespace walsh::cli {

// The types that users choose between, with the file's size, whether it fits, the divergence and
// the speed to expect, and the command that makes the best one that fits; as JSON if asked for.
// Throws as open_compressor.
std::string type_choice(const std::string& model, bool json, ThreadPool& pool);

// "MODEL-TYPE.gguf": a name for what is made of a model.
std::string output_name(const std::string& model, const std::string& type);

}  // namespace walsh::cli
