// Places loaded matrices in the memory of a device. Nothing else in loading depends on the device.
#pragma once

#include <memory>

#include "model/model.h"

namespace walsh {

class Placement {
 public:
  virtual ~Placement() = default;

  // Plans the memory before the first tensor is placed. Throws limit with the numbers if the model
  // will not fit. Returns Model::device_spare.
  virtual uint64_t plan(const WeightSource&, const ModelConfig&, const ModelSteps&,
                        const LoadOptions&) {
    return 0;
  }
  // Sets what the device multiplies with, which is Linear::dense, passes or device_weights. format,
  // rows, cols and bias are set already; a device may hold a plain matrix in a wider format.
  // Matrices come in the order of their layers.
  virtual void place(Linear& linear, Tensor stored, const MatrixDesc& matrix) = 0;
  // Returns the tensor with its arrays in host memory.
  virtual Tensor on_host(Tensor stored) { return stored; }
  // Places a table that tokens look up. The embedding comes before a head that may share its
  // memory. Returns null on the CPU, which uses the tensor itself.
  virtual std::shared_ptr<const DeviceWeights> place_table(const Tensor&) { return nullptr; }
  // Replaces the values of a plain matrix or table on the device by others of the same type. The
  // device must not use it until finish().
  virtual void overwrite(const DeviceWeights&, const Tensor&) {}
  // Ends the placement; all matrices have been placed.
  virtual void finish() {}
};

std::unique_ptr<Placement> make_placement(const Device& device);

}  // namespace walsh
