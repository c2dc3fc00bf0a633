// How the groups of a coded vector are encoded on a GPU.
#pragma once

#include "cache/cache_type.h"
#include "quantize/cuda/encode_args.h"

namespace walsh::cuda {

struct GroupCode {
  encoding::Levels levels = {};  // unless absmax; of codes as they are stored
  float start = 1;               // the search starts at start * rms
  int thresholds = 1;            // thresholds above zero
  bool absmax = false;
  // 16 levels that are symmetric about 0: codes below 8 are stored as 7 - code, so that the lower 3
  // bits say the magnitude.
  bool mirrored = false;
};

// That of a type which is not coded is not used. Throws internal for what the kernels do not know.
GroupCode group_code(const CacheType& type);

}  // namespace walsh::cuda
