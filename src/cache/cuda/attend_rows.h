// What the decoding kernels over a coded cache are told.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention_kernels.h"

namespace walsh::cuda::detail {

// Shared memory of a step, keys and values, per column of a head: 16 positions in fp16 or 64 in 4
// bits with a scale per 32 values.
inline constexpr int kStageBytesPerColumn = 72;

struct RowsArgs {
  CodedView cache;
  RowPlaces rows;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int group = 0, tiles = 0;            // query heads of a cache head, tiles of 8 of them
  int window = 0;                      // of the layer
  int most_tiles = 0;                  // stored ones of a step
  int key_bytes = 0, value_bytes = 0;  // of a stored tile
  int values_at = 0;                   // of a step's values in shared memory, behind its keys
  PartsArgs parts;
};

void launch_rows_64(const RowsArgs& args, int64_t m, int splits, Stream stream);
void launch_rows_128(const RowsArgs& args, int64_t m, int splits, Stream stream);
void launch_rows_256(const RowsArgs& args, int64_t m, int splits, Stream stream);

}  // namespace walsh::cuda::detail
