// Encoder of keys and values of a cache (cache/cache_type.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/cache_type.h"

namespace walsh {

// Encodes x[rows][padded], rotated, into codes[rows][code_bytes_per_row] and fp16
// scales[rows][cache_groups]. A row with a value that is not finite becomes zeros, in x too, with
// scales NaN: what is computed with it is NaN, as with fp16.
void encode_cache_rows(const CacheType& type, float* x, int64_t rows, int64_t padded,
                       std::byte* codes, uint16_t* scales);

}  // namespace walsh
