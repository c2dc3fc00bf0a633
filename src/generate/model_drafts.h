// Drafts tokens by a smaller model with the same vocabulary. It reads the texts as well, and
// continues them by its own logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/draft_places.h"
#include "model/session.h"

namespace walsh {

class ModelDrafts : public DraftSource {
 public:
  // It serves `texts` texts at once and guesses their first `positions` positions, or as many as
  // the model has; 0 means the default of SessionOptions. `model` must outlive this. `costs` are
  // those of this model; without them they are estimated. Throws as Session.
  ModelDrafts(const Model& model, int64_t texts, int64_t positions,
              const DraftCosts* costs = nullptr);
  // Returns the options of the session that a draft model of this kind needs.
  static SessionOptions session_options(const ModelConfig& config, int64_t texts,
                                        int64_t positions);

  void serve(const Model& model) override;
  int64_t begin(std::span<const int32_t> tokens, const std::string& owner) override;
  void end(int64_t text) override;
  void draft(std::span<DraftTask> tasks) override;
  void judge(int64_t text, size_t drafted, size_t right) override;

 private:
  using Place = DraftPlace;
  // Holds a task whose draft is not finished.
  struct Open {
    DraftTask* task;
    Place* place;
    TokenChooser chooser;
    int64_t wanted;  // the draft should have this many tokens
  };

  Place& place(int64_t text) { return places_[static_cast<size_t>(text)]; }
  bool knows(std::span<const int32_t> tokens) const;
  void match(Place& place, std::span<const int32_t> tokens, int64_t most);
  std::vector<Open> read(std::span<DraftTask> tasks);
  void evaluate(std::span<const SequenceTokens> batch, std::span<Open> open);
  void guess(Open& open, std::span<const float> logits);

  Session session_;
  std::vector<Place> places_;
  uint64_t clock_ = 0;
  DraftCosts costs_;
  const bool estimates_;
  int64_t vocab_ = 0;          // the model that is served has this many tokens
  std::vector<float> logits_;  // its shape is [vocab_]
};

}  // namespace walsh
