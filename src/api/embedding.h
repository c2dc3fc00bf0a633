// Makes embeddings of texts for Engine, TextBatch and the server: it decides the options, has a
// scheduler read the texts, and turns their states into embeddings.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/load.h"
#include "schedule/scheduler.h"

namespace walsh {

// Holds EmbeddingOptions after the model's files have decided the options that are left open.
struct EmbeddingForm {
  Reading pooling = Reading::last;
  bool normalize = true;
  int64_t dimensions = 0;  // only this many leading values remain; 0 means all

  // Makes an embedding of the state that pooling gave, in place.
  void apply(std::vector<float>& values) const;
};

// Throws usage naming the option, and the model if its states are not those of the checkpoint: a
// rotation is folded into the residual stream, and the gain of the final norm is not known.
EmbeddingForm embedding_form(const LoadedModel& model, const EmbeddingOptions& options);

// Returns the request for a text that is read.
TextRequest reading_request(std::span<const int32_t> prompt, Reading reading);

// Steps until the texts have been read. Returns the vectors that their sinks got, in the order of
// the texts. Throws the error of the first text that failed.
std::vector<std::vector<float>> read_texts(Scheduler& scheduler,
                                           std::span<const std::vector<int32_t>> prompts,
                                           Reading reading);
// Reads the texts as read_texts() does and returns their embeddings.
std::vector<std::vector<float>> embed_texts(Scheduler& scheduler,
                                            std::span<const std::vector<int32_t>> prompts,
                                            const EmbeddingForm& form);

}  // namespace walsh
