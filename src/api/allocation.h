// Allocates bits to a checkpoint given by names and paths, for the command and the public API.
#pragma once

#include <string>
#include <vector>

#include "allocate/allocate.h"
#include "api/calibrate.h"

namespace walsh {

struct AllocationRequest {
  std::string folder;
  std::string text;                     // path; empty: the model generates a text
  std::vector<std::string> candidates;  // names of formats; empty: the default ones
  AllocateOptions options;              // text, bos, candidates, device are filled in here
  CalibrationRequest calibration;       // of the file; its device also writes a text to measure on
};

// `base` is as for allocate(). Reads the tokenizer and the texts. Also throws bad_input and io.
Allocation allocate_checkpoint(AllocationRequest request, const Recipe& base,
                               const LoadOptions& load);

}  // namespace walsh
