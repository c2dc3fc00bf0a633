// Predicts what an allocation will take.
#pragma once

#include <cstdint>
#include <string>

#include "allocate/erring_model.h"
#include "allocate/self_text.h"

namespace walsh {

struct AllocationCost {
  double seconds = 0;
  uint64_t bytes = 0;  // of memory, beside the unquantized model
  int64_t alone = 0;   // measurements of a tensor alone
  int64_t whole = 0;   // measurements of a whole model, at most
  int64_t steps = 0;   // in which all windows of a text get a token; 0: the text is there
  std::string note;    // why it is not measured on the GPU that was asked for; usually empty
};

// Measure how long the model needs, with a few tokens: for a token of a text that is there, and for
// a step of write_self_text, with drawing. What is on disk is read first.
double seconds_per_token(const ErringModel& model);
double seconds_per_step(const Model& model, SelfTextOptions options);

}  // namespace walsh
