// What an allocation will take, known before it begins.
#pragma once

#include <cstdint>
#include <string>

#include "allocate/erring_model.h"

namespace walsh {

struct AllocationCost {
  double seconds = 0;
  uint64_t bytes = 0;  // of memory, beside the unquantized model
  int64_t alone = 0;   // measurements of a tensor alone
  int64_t whole = 0;   // measurements of a whole model, at most
  std::string note;    // why it is not measured on the GPU that was asked for; usually empty
};

// How long the model needs for a batch of tokens: measured, with two short batches.
struct ModelSpeed {
  double seconds_per_token = 0;  // of a text that is there
  double seconds_per_step = 0;   // in which each of a few sequences gets a token
};
ModelSpeed measure_speed(const ErringModel& model);

}  // namespace walsh
