// Measures the layers of a checkpoint on a GPU, which has the weights and the moments of one layer
// at a time; the residual stream of all tokens is in host memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/device.h"
#include "calibrate/measured_checkpoint.h"
#include "model/metering_executor.h"
#include "model/model.h"

namespace walsh {

class GpuMeter : public LayerMeter {
 public:
  // `checkpoint` outlives this object. `check` is called after each batch and may throw to stop.
  // Throws, before anything is read, usage for a model that the GPU does not compute, and limit
  // with the sizes for one that does not fit there.
  GpuMeter(MeasuredCheckpoint& checkpoint, std::vector<std::vector<int32_t>> windows,
           const Device& device, std::function<void()> check);

  void restart() override;
  std::vector<MeasuredInput> run(int64_t layer) override;

 private:
  void refuse_layers();
  // Returns the options that a part of the model is loaded with.
  LoadOptions options(const ModelConfig& part) const;
  // Returns the part of the model that the GPU holds while it measures a layer or the head.
  ModelConfig part(int64_t layer) const;
  // Calls body(rows) for batches of all tokens while the executor holds their residual stream,
  // which it then takes back.
  void for_batches(MeteringExecutor& executor, const std::function<void(int64_t rows)>& body);
  InputMoments read(MeteringExecutor& executor, const Input& input, int expert,
                    const std::function<void(float*)>& rotate) const;

  MeasuredCheckpoint& checkpoint_;
  std::vector<std::vector<int32_t>> windows_;
  Device device_;
  std::function<void()> check_;
  SessionOptions session_;
  AlignedArray<float> stream_;  // its shape is [all tokens][hidden]
};

}  // namespace walsh
