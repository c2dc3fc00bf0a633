// Encodes rows of cached keys and values (cache/cache_type.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/cache_type.h"

namespace walsh {

// Encodes rotated rows x[rows][padded] to codes[rows][code_bytes_per_row] and fp16
// scales[rows][cache_groups]. A row with a value that is not finite becomes zeros, also in x, with
// NaN scales, so that results that use it are NaN, as with an fp16 cache.
void encode_cache_rows(const CacheType& type, float* x, int64_t rows, int64_t padded,
                       std::byte* codes, uint16_t* scales);

}  // namespace walsh
