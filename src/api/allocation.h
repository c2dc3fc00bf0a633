// Allocates bits to a checkpoint that names and paths describe, for the command and the public API.
#pragma once

#include <string>
#include <vector>

#include "allocate/allocate.h"
#include "api/calibrate.h"

namespace walsh {

struct AllocationRequest {
  std::string folder;
  std::string text;                     // it is a path; if empty, the model generates a text
  std::vector<std::string> candidates;  // they name formats; if empty, the default ones are used
  // The function allocate_checkpoint fills in text, bos, candidates and device.
  AllocateOptions options;
  // This calibrates the file; its device also writes a text to measure on.
  CalibrationRequest calibration;
};

// Reads the tokenizer and the texts, then allocates. `base` has the meaning that it has for
// allocate(). Also throws bad_input and io.
Allocation allocate_checkpoint(AllocationRequest request, const Recipe& base,
                               const LoadOptions& load);

}  // namespace walsh
