// A smaller model that drafts the texts of another one (generate/model_drafts.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/load.h"
#include "generate/model_drafts.h"

namespace walsh {

struct DraftModel {
  DraftModel(Model loaded, int64_t texts, int64_t positions)
      : model(std::move(loaded)), drafts(model, texts, positions) {}

  Model model;
  ModelDrafts drafts;
};

// Loads the model at `path` for so many texts together of the one at `of`, which is loaded with
// `load` afterwards: what the smaller one takes is then known when memory is planned, and is taken
// from load.device_bytes. Throws as load_model, and usage for a model with another tokenizer.
std::unique_ptr<DraftModel> load_draft_model(const std::string& path, const std::string& of,
                                             int64_t texts, LoadOptions& load);

// Throws usage naming `path`, the draft model's, and the first token that differs, or the numbers
// of tokens if the draft model does not have nearly all tokens of the other one.
void check_same_vocabulary(const Tokenizer& model, const Tokenizer& draft, const std::string& path);

}  // namespace walsh
