// Opens a model by its path. The model is stored, random, or compressed while it is loaded. Only
// the last needs the pipeline that quantizes.
#include "quantize/pipeline/open.h"
#include "api/load.h"
#include "api/synthetic_model.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {

std::unique_ptr<WeightSource> open_weights(const std::string& path, const Recipe* recipe,
                                           ThreadPool& pool) {
  if (names_synthetic(path)) {
    if (recipe == nullptr) return open_synthetic(path);
    throw Error(ErrorCode::usage, path,
                "the name of a random model says its type: leave --quantize out");
  }
  return recipe == nullptr ? open_stored(path) : open_source(path, recipe, pool);
}

LoadedModel load_model(const std::string& path, const Recipe* recipe, const LoadOptions& options,
                       const GenerationOptions* generation, const TemplateText* chat_template) {
  const auto source = open_weights(path, recipe, *options.pool);
  return load_model(*source, path, options, generation, chat_template);
}

}  // namespace walsh
