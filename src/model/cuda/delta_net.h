// Computes recurrent layers on a GPU, which are gated delta nets and short convolutions: the states
// of sequences and snapshots, and their steps over the rows of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/delta/delta.h"
#include "model/convolved_rows.h"
#include "model/cuda/vectors.h"
#include "model/executor.h"
#include "model/row_groups.h"

namespace walsh {

class CudaDeltaNet {
 public:
  // Names the arrays of a batch's rows on the device. Rows of one sequence are neighbours.
  struct Rows {
    const float* channels = nullptr;  // The shape is [m][channels].
    float* decay = nullptr;           // The shape is [m][value heads].
    float* strength = nullptr;
    float* mixed = nullptr;  // The shape is [m][value heads * value_dim].
    cuda::RowPlaces places;
    int64_t m = 0;
  };

  // Allocates states in `slots` slots (model/state_snapshots.h), and workspaces for batches of up
  // to max_rows rows; nothing without recurrent layers. `vectors` has what these layers have
  // besides matrices; without it this only allocates memory.
  CudaDeltaNet(const ModelConfig& config, const ModelSteps& steps, const CudaVectors* vectors,
               int64_t slots, int64_t max_rows);

  void copy(int32_t from, int32_t to, cuda::Stream stream) const;

  // Returns the arguments for a kernel that steps single rows of a layer.
  cuda::ConvolveCall step_call(int64_t layer, const Rows& rows) const {
    return convolve_call(at(layer), rows);
  }

  // Convolves all rows of a batch between two gates: `call` names the rows and weights. Runs and
  // marks are as below.
  void convolve_gated(int64_t layer, cuda::GatedConvolveCall call, std::span<const Run> runs,
                      std::span<const StateMark> marks, cuda::Stream stream) const;
  // Convolves all rows of a batch for a delta net; runs and marks live until the end of the batch.
  void convolve(int64_t layer, const Rows& rows, std::span<const Run> runs,
                std::span<const StateMark> marks, cuda::Stream stream) const;
  // Applies the delta rule; rows before `skip` are not written.
  void apply_rule(int64_t layer, const Rows& rows, std::span<const Run> runs,
                  std::span<const RowGroup> groups, std::span<const StateMark> marks, int64_t skip,
                  cuda::Stream stream) const;

 private:
  struct Layer {
    cuda::DeltaDims dims;                         // A delta net has them.
    ConvolvedRows convolved;                      // A delta net or a short convolution has them.
    int64_t rows_at = 0, states_at = 0, end = 0;  // These are places in a slot.
    const float *taps = nullptr, *rate = nullptr, *bias = nullptr;
    const float *query_scale = nullptr, *key_scale = nullptr;
    const float *channel_bias = nullptr, *skip = nullptr;
    float least_strength = 0, most_strength = 0;
  };

  const Layer& at(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
  cuda::DeltaMemory memory(const Layer& layer) const;
  cuda::ConvolveCall convolve_call(const Layer& layer, const Rows& rows) const;
  void copy_part(int64_t from, int64_t to, int64_t begin, int64_t floats,
                 cuda::Stream stream) const;
  template <typename Call>
  void keep_runs(const Call& call, std::span<const Run> runs, std::span<const StateMark> marks,
                 cuda::Stream stream) const;
  void keep_single(const Layer& layer, const Run& run, const StateMark& mark,
                   cuda::Stream stream) const {
    copy_part(run.sequence, mark.slot, layer.rows_at, layer.end - layer.rows_at, stream);
  }
  void run_rows(const Layer& layer, const cuda::DeltaCall& call, const RowGroup& group,
                const Run& run, std::span<const StateMark> marks, int64_t skip,
                cuda::Stream stream) const;

  std::vector<Layer> layers_;  // All layers are here; without a state they have no rows.
  int64_t slot_floats_ = 0;
  cuda::Buffer states_;     // The shape is [slots][slot_floats_], float.
  cuda::Buffer convolved_;  // The shape is [max_rows][channels], float.
};

}  // namespace walsh
