// Says how groups of a coded vector are encoded on a GPU.
#pragma once

#include "cache/cache_type.h"
#include "codec/scalar/cuda/encode_args.h"

namespace walsh::cuda {

struct GroupCode {
  encoding::Levels levels = {};  // It holds the levels as stored, unless the type is absmax.
  float start = 1;               // The search starts at this scale, relative to the rms.
  int thresholds = 1;            // It counts thresholds above zero.
  bool absmax = false;
  // If true, 16 levels are symmetric about 0. Codes below 8 are then stored as 7 - code, so that
  // the lower 3 bits give the magnitude.
  bool mirrored = false;
};

// Describes the groups of a type, which must be coded. Throws internal for what kernels do not
// support.
GroupCode group_code(const CacheType& type);

}  // namespace walsh::cuda
