#include "api/embedding.h"

#include <string>
#include <utility>

#include "walsh/error.h"

namespace walsh {
namespace {

// Receives and keeps the vector that the scheduler read of a text.
class ReadText : public RequestSink {
 public:
  explicit ReadText(std::vector<float>& values) : values_(values) {}

  void read(std::span<const float> values) override {
    values_.assign(values.begin(), values.end());
  }
  bool chosen(const ScoredToken&) override { return false; }
  void ended(const RequestEnd& end) override {
    done = true;
    if (end.reason != StopReason::max_tokens)
      error = Error(ErrorCode::interrupted, "text", "it was stopped before it was read");
  }
  void failed(const Error& what, const RequestEnd&) override {
    done = true;
    error = what;
  }

  bool done = false;
  std::optional<Error> error;

 private:
  std::vector<float>& values_;
};

}  // namespace

void EmbeddingForm::apply(std::vector<float>& values) const {
  if (dimensions > 0) values.resize(static_cast<size_t>(dimensions));
  if (normalize) to_unit_length(values);
}

EmbeddingForm embedding_form(const LoadedModel& model, const EmbeddingOptions& options) {
  if (model.folded) {
    throw Error(ErrorCode::usage, model.path,
                "has no embeddings: its residual stream is rotated (--rotate residual)");
  }
  const int64_t most = model.model.config.hidden;
  if (options.dimensions < 0 || options.dimensions > most) {
    throw Error(ErrorCode::usage, "dimensions",
                std::to_string(options.dimensions) + " are asked for, the model has 1 to " +
                    std::to_string(most));
  }
  EmbeddingForm form;
  form.pooling = options.pooling.empty() ? model.embedding.pooling : parse_pooling(options.pooling);
  form.normalize = options.normalize.value_or(model.embedding.normalize);
  form.dimensions = options.dimensions;
  return form;
}

TextRequest reading_request(std::span<const int32_t> prompt, Reading reading) {
  TextRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.max_tokens = 0;
  request.most_drafted = 0;
  request.reading = reading;
  return request;
}

std::vector<std::vector<float>> read_texts(Scheduler& scheduler,
                                           std::span<const std::vector<int32_t>> prompts,
                                           Reading reading) {
  std::vector<std::vector<float>> values(prompts.size());
  std::vector<std::shared_ptr<ReadText>> texts;
  std::vector<uint64_t> ids;
  size_t ended = 0;
  const auto step = [&] {
    scheduler.step_or_fail();
    while (ended < texts.size() && texts[ended]->done)
      ++ended;
  };
  try {
    for (size_t i = 0; i < prompts.size(); ++i) {
      // Texts beyond the limit are added when others end.
      while (static_cast<int64_t>(i - ended) >= scheduler.most())
        step();
      texts.push_back(std::make_shared<ReadText>(values[i]));
      ids.push_back(scheduler.add(reading_request(prompts[i], reading), texts.back()));
    }
  } catch (...) {  // the values have no caller left
    for (const uint64_t id : ids)
      scheduler.cancel(id);
    scheduler.step_or_fail();
    throw;
  }
  while (ended < texts.size())
    step();
  for (const auto& text : texts)
    if (text->error) throw *text->error;
  return values;
}

std::vector<std::vector<float>> embed_texts(Scheduler& scheduler,
                                            std::span<const std::vector<int32_t>> prompts,
                                            const EmbeddingForm& form) {
  auto embeddings = read_texts(scheduler, prompts, form.pooling);
  for (std::vector<float>& values : embeddings)
    form.apply(values);
  return embeddings;
}

}  // namespace walsh
