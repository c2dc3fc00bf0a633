// Loads the source of drafts for a model's texts, which is a smaller model
// (generate/model_drafts.h) or the model's own layer that predicts further tokens
// (generate/ahead_drafts.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "api/load.h"
#include "generate/draft_source.h"

namespace walsh {

struct DraftModel {
  Model model;
  std::unique_ptr<DraftSource> drafts = nullptr;  // the model uses it for drafts
};

// Returns how many tokens a draft of the model's own layer has at most, which "mtp" or "mtp:N"
// says. Returns nothing if the text is the path of a smaller model. Throws usage for another number
// than 1 to DraftDepth::kMost.
std::optional<int64_t> ahead_depth(const std::string& spec);
// Loads a model as load_model does and, unless `spec` is empty, also the source of drafts for
// `texts` of its texts together, which is its own layer (ahead_depth) or the smaller model at that
// path. A smaller model is loaded first and its memory taken from load.device_bytes, so that it is
// known when memory is planned. Throws as load_model does, usage for a model with another
// tokenizer, without such a layer or on a device that does not run it.
LoadedModel load_with_drafts(const std::string& path, const Recipe* recipe, LoadOptions load,
                             const GenerationOptions* generation, const TemplateText* chat_template,
                             const std::string& spec, int64_t texts);

}  // namespace walsh
