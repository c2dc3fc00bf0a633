// Drafts tokens by a layer that predicts ahead (ModelConfig::ahead): it joins the model's output
// for a token with the next token, and goes on from its own output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generate/draft_places.h"
#include "model/final_norm.h"
#include "model/session.h"

namespace walsh {

class AheadDrafts : public DraftSource {
 public:
  // `layer` is loaded by ahead_config, has the options in `desc` and outlives this. It serves
  // `texts` texts at once, of at most `positions` positions, with drafts of at most `most` tokens.
  // `costs` are those of the layer; without them they are estimated. Throws as Session.
  AheadDrafts(const Model& layer, const AheadDesc& desc, int64_t texts, int64_t positions,
              int64_t most, const DraftCosts* costs = nullptr);

  void serve(const Model& model) override;
  int64_t begin(std::span<const int32_t> tokens, const std::string& owner) override;
  void end(int64_t text) override { place(text).taken = false; }
  void draft(std::span<DraftTask> tasks) override;
  void judge(int64_t text, size_t drafted, size_t right) override {
    place(text).depth.judge(drafted, right);
  }
  bool reads_streams() const override { return true; }
  void see(int64_t text, int64_t position, std::span<const float> stream) override;

 private:
  // Holds a sequence of the layer. Its row r joins the model's output for position first + r of the
  // text with the token after it; `tokens` are those of the text up to the last row.
  struct Place : DraftPlace {
    int64_t first = 0, rows = 0;
    int64_t seen_first = 0;   // the first of `seen` has this position
    std::vector<float> seen;  // no row has joined these outputs of the model yet

    int64_t next() const { return first + rows; }
  };
  // Holds a task whose draft is not finished.
  struct Open {
    DraftTask* task;
    Place* place;
    TokenChooser chooser;
    int64_t wanted;             // the draft should have this many tokens
    std::vector<float> stream;  // the next row joins it
  };

  Place& place(int64_t text) { return places_[static_cast<size_t>(text)]; }
  int64_t width() const { return session_.model().config.hidden; }
  void match(Place& place, std::span<const int32_t> tokens);
  int64_t joinable(Place& place, std::span<const int32_t> tokens);
  std::vector<Open> read(std::span<DraftTask> tasks);
  void evaluate(std::span<const SequenceTokens> batch, std::span<Open> open);
  void guess(Open& open, std::span<const float> logits);

  Session session_;
  const bool joins_normed_;
  FinalNorm model_norm_, own_norm_;
  const int64_t most_;
  std::vector<Place> places_;
  uint64_t clock_ = 0;
  DraftCosts costs_;
  const bool estimates_;
};

}  // namespace walsh
