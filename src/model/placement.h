// Where a loaded matrix goes: the one thing about loading that depends on the device.
#pragma once

#include <memory>

#include "model/model.h"

namespace walsh {

class Placement {
 public:
  virtual ~Placement() = default;

  // Refuses a form of input that the device cannot make.
  virtual void check(const PreparedInput&) const {}
  // Fills in what the device multiplies with: Linear::dense, passes or device_weights. format,
  // rows, cols and bias are set.
  virtual void place(Linear& linear, Tensor stored) = 0;
  // All matrices are placed.
  virtual void finish() {}
};

std::unique_ptr<Placement> make_placement(const Device& device);

}  // namespace walsh
