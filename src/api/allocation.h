// From names and paths to an allocation: what the command and the public API have in common.
#pragma once

#include <string>
#include <vector>

#include "allocate/allocate.h"
#include "api/calibrate.h"

namespace walsh {

struct AllocationRequest {
  std::string folder;
  std::string text;                     // path; empty: the model writes some itself
  std::vector<std::string> candidates;  // names of formats; empty: the default ones
  AllocateOptions options;              // text, bos and candidates are filled in
  CalibrationRequest calibration;       // of every recipe that is tried
};

// `base` as for allocate(). Reads tokenizer and texts. Throws also bad_input and io.
Allocation allocate_checkpoint(AllocationRequest request, const Recipe& base,
                               const LoadOptions& load);

}  // namespace walsh
