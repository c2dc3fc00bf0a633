// Holds the matrices of the unquantized model on any device, each exact or with an error of some
// size.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/stand_in.h"
#include "model/model.h"
#include "model/placement.h"

namespace walsh {

class ErringWeights {
 public:
  // This number of a layer means the embedding, in front of layer 0; the head comes after the
  // last.
  static constexpr int64_t kEmbedding = -1;

  // `tensors` and `stand_in` outlive this object. Loads the model on load.device, or on the CPU if
  // a GPU refuses it or cannot measure its layers one by one; note() then says why. A GPU gets the
  // weights as f32 if these fit, because it rounds the inputs of a product to the type of the
  // weights.
  ErringWeights(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
                const LoadOptions& load);

  const Model& model() const { return *model_; }
  const std::string& note() const { return note_; }
  int64_t head() const { return static_cast<int64_t>(model_->layers.size()); }
  // Returns the numbers of a layer's tensors.
  const std::vector<size_t>& of_layer(int64_t layer) const;
  // Lets a tensor err by this relative squared error from now on; 0 makes it exact. On the CPU
  // erring matrices take memory; on a GPU they are written over the exact ones.
  void set(size_t tensor, double error);
  // Ends the changes, after which the model may be used.
  void finish() { placement_->finish(); }

 private:
  // Says where a matrix is in the model.
  struct Place {
    int64_t layer = kEmbedding;
    int matrix = 0;
    bool of_layers = false;  // it is the second of the two tables that tokens look up
  };

  Model load_model(LoadOptions load);
  void find_places();
  const MatrixForm* form_of(const Place& place) const;
  Linear& linear(const Place& place);
  TokenTable& table(const Place& place);
  Tensor in_memory(const Place& place);
  Tensor matrix(const std::string& name, const Place& place, double error);
  void put(const Place& place, const Tensor& tensor);
  static void put(Linear& linear, const Tensor& tensor);

  const std::vector<CandidateTensor>& tensors_;
  StandIn& stand_in_;
  std::unique_ptr<WeightSource> plain_;
  std::string note_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Placement> placement_;
  std::map<std::string, Place> places_;
  std::map<int64_t, std::vector<size_t>> by_layer_;  // it lists the tensors of each layer
  std::vector<double> errors_;                       // each tensor has one
  std::map<std::string, Tensor> exact_;              // the CPU's model uses these in place
};

}  // namespace walsh
