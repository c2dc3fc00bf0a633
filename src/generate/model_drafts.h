// Drafts of a smaller model with the same tokens: it reads the texts along, and goes on with them
// by its own logits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/draft_places.h"
#include "model/session.h"

namespace walsh {

class ModelDrafts : public DraftSource {
 public:
  // For so many texts together, of which the first `positions` positions are guessed, or as many as
  // the model has; 0: the default of SessionOptions. `model` must outlive this. Throws as Session.
  // `costs`: those of this model; without them they are estimated.
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
  // A task that is not done.
  struct Open {
    DraftTask* task;
    Place* place;
    TokenChooser chooser;
    int64_t wanted;  // tokens of the draft
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
  int64_t vocab_ = 0;          // of the model that is served
  std::vector<float> logits_;  // as many
};

}  // namespace walsh
