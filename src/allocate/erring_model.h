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
  // `tensors` and `stand_in` outlive the model. `load` has the meaning that it has for Model::load;
  // a GPU gets room for texts of its `use`.
  ErringModel(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
              const LoadOptions& load);

  // Holds windows of text, and the model's predictions while nothing errs.
  struct Text {
    LayerStream stream;
    ReferenceText reference;
  };
  std::unique_ptr<Text> text(std::vector<std::vector<int32_t>> windows,
                             const std::function<void()>& check);
  // Returns a stream that holds the windows in front of the first layer.
  LayerStream stream(std::vector<std::vector<int32_t>> windows,
                     const std::function<void()>& check = {}) const;

  // Returns the divergence if each tensor errs by its relative squared error, where 0 means that it
  // is exact. On the CPU one layer at a time is decoded; a GPU keeps the erring matrices until the
  // next measurement asks for others.
  Estimate divergence(Text& text, std::span<const double> errors);
  // Returns the divergences [tensor][level] that each tensor causes alone at each level of error.
  // The layers in front of a tensor are computed only once. `progress` is called before each of
  // them, with their number so far and in all, and may throw to stop.
  std::vector<std::vector<double>> alone(Text& text, std::span<const double> levels,
                                         const std::function<void(int64_t, int64_t)>& progress);

  const Model& model() const { return weights_.model(); }
  // Says why the model is not on the GPU that was asked for; the note is usually empty.
  const std::string& note() const { return weights_.note(); }
  // Returns the memory that measuring whole models takes for a text and for one of the same length
  // that is kept beside it.
  uint64_t bytes(int64_t tokens) const;

 private:
  class Scope;

  int64_t head() const { return weights_.head(); }
  bool keeps_cache(int64_t layer) const;
  void settle(std::span<const double> errors);

  const std::vector<CandidateTensor>& tensors_;
  ErringWeights weights_;
  std::shared_ptr<LayerRunner> runner_;  // only a GPU has it; it runs all texts
};

}  // namespace walsh
