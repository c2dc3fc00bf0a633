// Holds what determines how much memory an executor on a GPU needs. It is known before a model is
// loaded.
#pragma once

#include "cache/cache_type.h"
#include "model/model.h"

namespace walsh {

struct CudaSizes {
  const ModelConfig& config;
  const ModelSteps& steps;
  ActivationMode activations = ActivationMode::automatic;
  bool rotate_weights = false;
  CacheTypes cache;
  int64_t snapshots = 0;   // It is SessionOptions::kept_states().
  int64_t batch_rows = 0;  // It is LoadOptions::batch_rows.
};

// Calls see(desc, form, is_head) for the head and for all matrices that belong to no expert.
template <typename See>
void each_common_matrix(const CudaSizes& sizes, const See& see) {
  const ModelConfig& c = sizes.config;
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const std::vector<MatrixDesc>& matrices = c.layers[i].matrices;
    for (size_t m = 0; m < matrices.size(); ++m)
      if (matrices[m].expert < 0) see(matrices[m], sizes.steps.layers[i].matrices[m], false);
  }
  if (!c.head.weight.empty()) see(c.head, sizes.steps.head.matrices[0], true);
}

}  // namespace walsh
