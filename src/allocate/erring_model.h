// Holds the unquantized model, any of whose matrices can err as if they were quantized.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/erring_weights.h"
#include "allocate/reference_text.h"
#include "allocate/stand_in.h"
#include "calibrate/layer_stream.h"
#include "model/model.h"

namespace walsh {

class ErringModel {
 public:
  // `tensors` and `stand_in` outlive the model. `load` as for Model::load; a GPU gets room for
  // texts of its `use`.
  ErringModel(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
              const LoadOptions& load);

  // Holds windows of text, and the model's predictions while nothing errs.
  struct Text {
    LayerStream stream;
    ReferenceText reference;
  };
  std::unique_ptr<Text> text(std::vector<std::vector<int32_t>> windows,
                             const std::function<void()>& check);
  // Windows in front of the first layer.
  LayerStream stream(std::vector<std::vector<int32_t>> windows,
                     const std::function<void()>& check = {}) const;

  // Divergence if each tensor errs by its relative squared error, 0 being none. On the CPU one
  // layer at a time is decoded; a GPU keeps what errs until the next measurement wants something
  // else.
  Estimate divergence(Text& text, std::span<const double> errors);
  // Returns the divergences if one tensor alone errs: [tensor][level]. What is in front of a tensor
  // is computed only once. `progress` is called before each of them, with their number so far and
  // in all, and may throw to stop.
  std::vector<std::vector<double>> alone(Text& text, std::span<const double> levels,
                                         const std::function<void(int64_t, int64_t)>& progress);

  const Model& model() const { return weights_.model(); }
  // Why the model is not on the GPU that was asked for; usually empty.
  const std::string& note() const { return weights_.note(); }
  // The memory that measuring whole models on a text takes, and on as long a one kept beside it.
  uint64_t bytes(int64_t tokens) const;

 private:
  class Scope;

  int64_t head() const { return weights_.head(); }
  bool keeps_cache(int64_t layer) const;
  void settle(std::span<const double> errors);

  const std::vector<CandidateTensor>& tensors_;
  ErringWeights weights_;
  std::shared_ptr<LayerRunner> runner_;  // on a GPU: of all texts
};

}  // namespace walsh
