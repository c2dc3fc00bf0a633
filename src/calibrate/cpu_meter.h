// Measures the layers of a checkpoint on the CPU.
#pragma once

#include <functional>
#include <vector>

#include "base/aligned.h"
#include "calibrate/layer_stream.h"
#include "calibrate/measured_checkpoint.h"
#include "model/model.h"

namespace walsh {

class CpuMeter : public LayerMeter {
 public:
  // `checkpoint` outlives this object. `check` is called after each window and may throw to stop.
  // Throws as Model::load and LayerStream.
  CpuMeter(MeasuredCheckpoint& checkpoint, std::vector<std::vector<int32_t>> windows,
           std::function<void()> check);

  void restart() override { stream_.restart(); }
  std::vector<MeasuredInput> run(int64_t layer) override;

 private:
  struct Site {
    const Input* input;
    MeasuredInput measured;
    // Rotates an input into the basis of the folded model; it may be empty.
    std::function<void(float*)> rotate;
  };

  void add(const Input& input, const CpuExecutor::InputRows& rows);
  // Writes the inputs of the folded model that correspond to `rows`, [m][width], to folded_rows_.
  void fold(const Site& site, const CpuExecutor::InputRows& rows);

  MeasuredCheckpoint& checkpoint_;
  Model model_;
  LayerStream stream_;
  std::vector<Site> sites_;          // the layer that is run has these
  AlignedArray<float> folded_rows_;  // it holds one batch
  std::vector<float> no_gain_;       // it holds `hidden` ones
};

}  // namespace walsh
