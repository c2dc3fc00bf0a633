// Computes gated delta nets on a GPU: the states of sequences and snapshots, and their steps over
// the rows of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/delta/delta.h"
#include "model/cuda/vectors.h"
#include "model/executor.h"
#include "model/row_groups.h"

namespace walsh {

class CudaDeltaNet {
 public:
  // Names the rows of a batch on the device; those of a sequence are neighbours.
  struct Rows {
    const float* channels = nullptr;  // [m][channels]
    float* decay = nullptr;           // [m][value heads]
    float* strength = nullptr;
    float* mixed = nullptr;  // [m][value heads * value_dim]
    cuda::RowPlaces places;
    int64_t m = 0;
  };

  // Allocates states in `slots` slots (model/state_snapshots.h), and workspaces for batches of up
  // to max_rows rows; nothing without recurrent layers. `vectors` has what these layers have
  // besides matrices; without it this only allocates memory.
  CudaDeltaNet(const ModelSteps& steps, const CudaVectors* vectors, int64_t slots,
               int64_t max_rows);

  void copy(int32_t from, int32_t to, cuda::Stream stream) const;

  // Returns what a step of a layer needs to know about single rows.
  cuda::ConvolveCall step_call(int64_t layer, const Rows& rows) const {
    return convolve_call(at(layer), rows);
  }

  // Convolves all rows of a batch, whose runs and marks live until its end.
  void convolve(int64_t layer, const Rows& rows, std::span<const Run> runs,
                std::span<const StateMark> marks, cuda::Stream stream) const;
  // Applies the delta rule; rows before `skip` are not written.
  void apply_rule(int64_t layer, const Rows& rows, std::span<const Run> runs,
                  std::span<const RowGroup> groups, std::span<const StateMark> marks, int64_t skip,
                  cuda::Stream stream) const;

 private:
  struct Layer {
    cuda::DeltaDims dims;
    int64_t rows_at = 0, states_at = 0;  // in a slot
    const float *taps = nullptr, *rate = nullptr, *bias = nullptr;
    const float *query_scale = nullptr, *key_scale = nullptr;
  };

  const Layer& at(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  cuda::DeltaMemory memory(const Layer& layer) const;
  cuda::ConvolveCall convolve_call(const Layer& layer, const Rows& rows) const;
  void copy_part(int64_t from, int64_t to, int64_t begin, int64_t floats,
                 cuda::Stream stream) const;
  void run_rows(const Layer& layer, const cuda::DeltaCall& call, const RowGroup& group,
                const Run& run, std::span<const StateMark> marks, int64_t skip,
                cuda::Stream stream) const;

  std::vector<Layer> layers_;  // of the model, without dims where a layer has none
  int64_t slot_floats_ = 0;
  cuda::Buffer states_;     // float [slots][slot_floats_]
  cuda::Buffer convolved_;  // float [max_rows][channels]
};

}  // namespace walsh
