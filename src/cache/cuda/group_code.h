// Says how groups of a coded vector are encoded on a GPU.
#pragma once

#include "cache/cache_type.h"
#include "codec/scalar/cuda/encode_args.h"

namespace walsh::cuda {

struct GroupCode {
  encoding::Levels levels = {};  // unless absmax; for codes as they are stored
  float start = 1;               // initial scale of the search, relative to the rms
  int thresholds = 1;            // thresholds above zero
  bool absmax = false;
  // Set for 16 levels that are symmetric about 0: codes below 8 are then stored as 7 - code, so
  // that the lower 3 bits give the magnitude.
  bool mirrored = false;
};

// The result is undefined for types without codes. Throws internal for what kernels do not support.
GroupCode group_code(const CacheType& type);

}  // namespace walsh::cuda
