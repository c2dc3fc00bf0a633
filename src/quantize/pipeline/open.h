// Opens a model, whatever form it has.
#pragma once

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "codec/weight_source.h"
#include "quantize/pipeline/compressor.h"
#include "quantize/recipe/recipe.h"

namespace walsh {

// Opens a checkpoint folder or a foreign GGUF file for compression. Throws usage if `path` is
// already a walsh file or a folder coded by walsh, and bad_input for a file of another kind.
std::unique_ptr<Compressor> open_compressor(const std::string& path, const Recipe& recipe,
                                            ThreadPool& pool);

// Opens a walsh file, a folder in walsh's codes, a Hugging Face folder or a foreign GGUF file. The
// model stays as it is, unless `recipe` is given: then it is compressed while loading.
std::unique_ptr<WeightSource> open_source(const std::string& path, const Recipe* recipe,
                                          ThreadPool& pool);

}  // namespace walsh
