// What drafts the texts of a model: a smaller one (generate/model_drafts.h), or the model's own
// layer that predicts further tokens (generate/ahead_drafts.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <optional>

#include "api/load.h"
#include "generate/draft_source.h"

namespace walsh {

struct DraftModel {
  Model model;
  std::unique_ptr<DraftSource> drafts = nullptr;  // by this model
};

// The most tokens of a draft that "mtp" or "mtp:N" asks for of the model's own layer; nothing for
// the path of a smaller model. Throws usage for another number than 1 to DraftDepth::kMost.
std::optional<int64_t> ahead_depth(const std::string& spec);
// Throws usage naming the model at `path` if it has no such layer.
void require_ahead(const std::string& path, const Recipe* recipe, ThreadPool& pool);
// Loads that layer for so many texts together of `model`, which was loaded with `load`. Throws
// usage where the model's device does not run it.
void load_ahead(const Recipe* recipe, const LoadOptions& load, int64_t texts, int64_t most,
                LoadedModel& model);

// Loads the model at `path` for so many texts together of the one at `of`, which is loaded with
// `load` afterwards: what the smaller one takes is then known when memory is planned, and is taken
// from load.device_bytes. Throws as load_model, and usage for a model with another tokenizer.
std::unique_ptr<DraftModel> load_draft_model(const std::string& path, const std::string& of,
                                             int64_t texts, LoadOptions& load);

// Throws usage naming `path`, the draft model's, and the first token that differs, or the numbers
// of tokens if the draft model does not have nearly all tokens of the other one.
void check_same_vocabulary(const Tokenizer& model, const Tokenizer& draft, const std::string& path);

}  // namespace walsh
