// Arguments of the decode kernels over a coded cache.
#pragma once

#include "cache/cuda/coded_cache.h"
#include "kernels/cuda/attention/cache_view.h"

namespace walsh::cuda::detail {

inline constexpr int kRowStages = 3;  // pipeline steps of a warp in shared memory
// Blocks per multiprocessor; they have as many warps as their registers allow.
constexpr int row_blocks(int head_dim) {
  return head_dim == 64 ? 5 : 4;
}

struct RowsArgs {
  CodedView cache;
  RowPlaces rows;
  const float* q = nullptr;
  int64_t ldq = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  int group = 0, tiles = 0;  // query heads per KV head, and tiles of 8 of them
  int window = 0;            // the layer's (AttentionRows::window)
  int most_tiles = 0;        // most stored tiles per step: 1, 2 or 4
  // Bytes of shared memory per warp and per step, and the offset of a step's values after its keys.
  int ring_bytes = 0, stage_bytes = 0, values_at = 0;
  PartsArgs parts;
  LogitCap cap;
};

void launch_rows_64(const RowsArgs& args, int64_t m, int splits, Stream stream);
void launch_rows_128(const RowsArgs& args, int64_t m, int splits, Stream stream);
void launch_rows_256(const RowsArgs& args, int64_t m, int splits, Stream stream);

}  // namespace walsh::cuda::detail
