// The unquantized model, of whose matrices any may err as if they were quantized.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/reference_text.h"
#include "allocate/stand_in.h"
#include "calibrate/layer_stream.h"
#include "model/model.h"

namespace walsh {

class ErringModel {
 public:
  // `tensors` and `stand_in` outlive the model. `load` as for Model::load, on the CPU.
  ErringModel(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
              const LoadOptions& load);

  // Windows with the model's predictions while nothing errs.
  struct Text {
    LayerStream stream;
    ReferenceText reference;
  };
  std::unique_ptr<Text> text(std::vector<std::vector<int32_t>> windows,
                             const std::function<void()>& check);

  // Divergence if each tensor errs by its relative squared error, 0 being none. One layer at a time
  // is decoded.
  Estimate divergence(Text& text, std::span<const double> errors);
  // Divergences if one tensor alone errs: [tensor][level]. What is in front of a tensor is computed
  // once for all. `progress` is called before each of them, with their number so far and in all,
  // and may throw to stop.
  std::vector<std::vector<double>> alone(Text& text, std::span<const double> levels,
                                         const std::function<void(int64_t, int64_t)>& progress);

  const Model& model() const { return model_; }
  // The memory that measuring whole models on a text takes, and on as long a one kept beside it.
  uint64_t bytes(int64_t tokens) const;

 private:
  static constexpr int64_t kEmbedding = -1;  // in front of layer 0; the head comes behind the last
  // Where a matrix is in the model.
  struct Place {
    int64_t layer = kEmbedding;
    int matrix = 0;
    bool of_layers = false;  // of the two tables that tokens look up: the second one
  };
  class Exchange;

  int64_t head() const { return static_cast<int64_t>(model_.layers.size()); }
  void find_places();
  bool keeps_cache(int64_t layer) const;
  Estimate run_to_end(Text& text, int64_t layer);

  const std::vector<CandidateTensor>& tensors_;
  StandIn& stand_in_;
  std::unique_ptr<WeightSource> plain_;
  Model model_;
  std::map<std::string, Place> places_;
  std::map<int64_t, std::vector<size_t>> by_layer_;  // tensors
};

}  // namespace walsh
