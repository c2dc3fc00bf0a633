// Steps between the products: token embedding, and rotary positions with the append to the cache.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "formats/format.h"
#include "kernels/cuda/attention.h"
#include "rotate/rotation.h"

namespace walsh::cuda {

// What rope_and_store does to queries, keys and values of m rows, [m][ld] floats each, heads side
// by side.
struct RopeCall {
  float* q = nullptr;  // normed and rotated in place
  int64_t ldq = 0;
  const float* k =
      nullptr;  // normed, rotated and stored in the cache, like v, which is only stored
  int64_t ldk = 0;
  const float* v = nullptr;
  int64_t ldv = 0;
  int64_t m = 0;
  int heads = 0;
  const float* q_norm = nullptr;  // [head_dim] gains of an RMSNorm per head, or null
  const float* k_norm = nullptr;
  float eps = 0;
  const float* cos = nullptr;  // [positions][head_dim / 2] on the device
  const float* sin = nullptr;
};

// One launch. Bits are those of the CPU's norm, rope and conversion to fp16 (the sum of squares is
// added up in double in another order).
void rope_and_store(const RopeCall& call, const KvPool& cache, const PageTable& table,
                    const RowPlaces& rows, Stream stream);

// The token embedding [rows, cols] on the device as it is stored: dense `data`, or the arrays of
// one or two scalar passes and their rotations (hadamard or none).
struct StoredTable {
  struct Pass {
    const void* codes = nullptr;
    const void* scales = nullptr;
    const void* offsets = nullptr;     // if has_offset
    const void* sub_scales = nullptr;  // if sub_group
    Rotation rotation;
  };
  const Format* format = nullptr;
  int64_t rows = 0, cols = 0;
  const void* data = nullptr;
  Pass pass[2];
};

// x[t][0..cols) = row tokens[t] of the table in the original basis, the same bits as decoding on
// the CPU. Token ids are read on the device; a row whose id is outside [0, rows) becomes NaN.
void embed(const StoredTable& table, const int32_t* tokens, int64_t m, float* x, int64_t ldx,
           Stream stream);

}  // namespace walsh::cuda
