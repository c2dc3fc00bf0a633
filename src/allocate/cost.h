// Predicts the time and the memory that an allocation will take.
#pragma once

#include <cstdint>
#include <string>

#include "allocate/erring_model.h"
#include "allocate/self_text.h"

namespace walsh {

struct AllocationCost {
  double seconds = 0;
  uint64_t bytes = 0;  // this much memory is needed beside the unquantized model
  int64_t alone = 0;   // a tensor is measured alone this many times
  int64_t whole = 0;   // a whole model is measured at most this many times
  // In this many steps all windows of a text get a token; 0 means that the text is there.
  int64_t steps = 0;
  // Says why the model is not measured on the GPU that was asked for; it is usually empty.
  std::string note;
};

// These measure with a few tokens how many seconds the model takes for a token of a text that is
// there, and for a step of write_self_text, drawing included. They first let the model read its
// weights from the disk.
double seconds_per_token(const ErringModel& model);
double seconds_per_step(const Model& model, SelfTextOptions options);

}  // namespace walsh
