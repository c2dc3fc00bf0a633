// Opens whatever a command was given as a model.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "formats/weight_source.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/recipe/recipe.h"

namespace walsh {

// A checkpoint folder or a foreign GGUF file, prepared for compression. Throws usage if `path` is a
// walsh file already or a folder that walsh has coded; bad_input for a file of another kind.
std::unique_ptr<Compressor> open_compressor(const std::string& path, const Recipe& recipe,
                                            ThreadPool& pool);

// A walsh file, or a folder in walsh's codes, or a Hugging Face folder or a foreign GGUF file: as
// it is, or compressed while loading if `recipe` is given.
std::unique_ptr<WeightSource> open_source(const std::string& path, const Recipe* recipe,
                                          ThreadPool& pool);

}  // namespace walsh
