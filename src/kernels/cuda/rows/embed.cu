// Embeds tokens. Rows are decoded from the stored layout, rotated back, and passes are added up as
// Model::embed does. A block has 1024 columns, which no rotation block crosses.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <string>

#include "codec/kernels.h"
#include "codec/product/product.h"
#include "codec/scalar/words.h"
#include "codec/trellis/trellis.h"
#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kColumns = 1024;  // A block has this many columns.
constexpr int kThreads = 256;
constexpr int kPerThread = kColumns / kThreads;
constexpr int kMinSegment = 32;

struct PassView {
  const uint8_t* codes = nullptr;
  const __half* scales = nullptr;
  const __half* offsets = nullptr;
  const __half* sub_scales = nullptr;
  const int8_t* codebook = nullptr;  // Product codes have it; otherwise it is null.
  int residual = 0;
  int step_bits = 0;  // Trellis codes have it; otherwise it is 0.
  uint32_t multiplier = 0;
  // Trellis codes have it; if null, scales are per row and block.
  const __half* col_scales = nullptr;
  float unit = 1;
  int bits = 0, row_bytes = 0;
  int group = 0, groups = 0;  // A scale holds for `group` columns.
  int sub_group = 0, sub_groups = 0;
  int block = 0;  // The rotation has blocks of this many columns; 0: there is none.
  uint32_t seed = 0;
  bool signs = false;
  float levels[16] = {};
};

struct EmbedArgs {
  const int32_t* tokens = nullptr;
  int64_t rows = 0;
  int cols = 0, padded = 0;
  int passes = 0;  // 0 stands for a dense table.
  DType type = DType::f32;
  const void* data = nullptr;
  PassView pass[2];
  float* x = nullptr;
  int64_t ldx = 0;
  float scale = 1;
};

// A tile has this many steps of two weights each.
constexpr int kPairSteps = kTileWeights / 2;

// Returns the code of a column (docs/formats/README.md), where 32 codes lie in `bits` words.
__device__ int stored_code(const PassView& w, const uint8_t* row, int column) {
  if (w.bits == 8) return row[column];
  const auto* words = reinterpret_cast<const uint32_t*>(row) + column / 32 * w.bits;
  const int i = column % 32;
  const uint32_t octet = scalar::with_width(w.bits, [&](auto width) {
    if constexpr (width == 8) {
      return 0u;
    } else {
      return scalar::octet<width>(words, i / 8);
    }
  });
  return static_cast<int>(octet >> 4 * (i % 8) & 15);
}

// Returns the level of a product code (codec/product/product.h).
__device__ float product_level(const PassView& w, const uint8_t* row, int column) {
  const uint8_t* unit = row + column / 32 * 12;
  const int pointer = unit[column % 32 / 16 * 4 + column % 4];
  const int entry = w.codebook[pointer * 4 + column % 16 / 4];
  const bool negative = (unit[8 + column % 4] >> (column % 32 / 4) & 1) != 0;
  return w.unit * static_cast<float>(negative ? entry - w.residual : entry + w.residual);
}

// Returns a weight of trellis codes made from the bytes of a product (codec/trellis/trellis.h).
__device__ float trellis_value(const PassView& w, int64_t row, int column, int padded) {
  const int tile_bytes = 16 * w.step_bits;
  const int64_t tile = row / kTileRows * (padded / kTileCols) + column / kTileCols;
  const int position = tile_position(static_cast<int>(row % kTileRows), column % kTileCols);
  const int bit = w.step_bits * (kPairSteps - 1 - position / 2);
  uint32_t window = 0;
  for (int i = 0; i < 3; ++i)
    window |= uint32_t{w.codes[tile * tile_bytes + (bit / 8 + i) % tile_bytes]} << (8 * i);
  const uint32_t product = (window >> (bit % 8) & 0xffffu) * w.multiplier >> (8 * (position % 2));
  const int level = static_cast<int>((product & 127u) + (product >> 16 & 127u)) - 127;
  const int64_t block = column_block(column, padded);
  const float scale = w.col_scales ? __half2float(w.scales[row]) * __half2float(w.col_scales[block])
                                   : __half2float(w.scales[row * w.groups + block]);
  return scale * (w.unit * static_cast<float>(level));
}

// Decodes a weight. Each kind of code has an instance, so that no branch separates the loads.
template <CodeKind Kind>
__device__ float decode(const PassView& w, int64_t row, int column, int padded) {
  if constexpr (Kind == CodeKind::trellis) return trellis_value(w, row, column, padded);
  if constexpr (Kind == CodeKind::product) {
    return __half2float(w.scales[row * w.groups + column / w.group]) *
           product_level(w, w.codes + row * w.row_bytes, column);
  }
  const int code = stored_code(w, w.codes + row * w.row_bytes, column);
  const int64_t group = row * w.groups + column / w.group;
  float scale = __half2float(w.scales[group]);
  if (w.sub_group)
    scale = scale * __half2float(w.sub_scales[row * w.sub_groups + column / w.sub_group]);
  const float level = w.bits == 8 ? static_cast<float>(static_cast<int8_t>(code)) : w.levels[code];
  const float offset = w.offsets ? __half2float(w.offsets[group]) : 0.0f;
  return scale * level + offset;
}

// Returns the size of the Hadamard segment of a column: full blocks come first, then descending
// powers of two.
__device__ int segment_size(int block, int padded, int column) {
  const int tail = padded % block;
  int offset = column - (padded - tail);
  if (offset < 0) return block;
  int size = block / 2;
  for (; size > kMinSegment; size /= 2) {
    if ((tail & size) == 0) continue;
    if (offset < size) break;
    offset -= size;
  }
  return size;
}

// Returns sign / sqrt(segment), which is the Rotator's factor.
__device__ float rotation_factor(const PassView& w, int size, int column) {
  uint32_t h = static_cast<uint32_t>(column) * 0x9E3779B9u + w.seed;
  h ^= h >> 16;
  h *= 0x85EBCA6Bu;
  h ^= h >> 13;
  h *= 0xC2B2AE35u;
  // The square root of a power of two is computed without the CPU's double square root and
  // division, which are slow here.
  const int log = 31 - __clz(size);
  const float norm =
      (log % 2 != 0 ? 0.70710678118654752f : 1.0f) / static_cast<float>(1 << log / 2);
  return w.signs && h >> 31 ? -norm : norm;
}

// Decodes the block's columns of a pass and rotates them back. Thread i has columns i, i + 256, ...
template <CodeKind Kind>
__device__ void decode_pass(const EmbedArgs& args, const PassView& w, int64_t row, int first,
                            float* shared, float (&v)[kPerThread]) {
  const int thread = static_cast<int>(threadIdx.x);
  int size[kPerThread];
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int column = first + thread + j * kThreads;
    v[j] = column < args.padded ? decode<Kind>(w, row, column, args.padded) : 0.0f;
    size[j] = w.block && column < args.padded ? segment_size(w.block, args.padded, column) : 0;
  }
  for (int h = 1; h < w.block; h *= 2) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      shared[thread + j * kThreads] = v[j];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int i = thread + j * kThreads;
      if (h >= size[j]) continue;
      v[j] = (i & h) != 0 ? shared[i ^ h] - v[j] : v[j] + shared[i ^ h];
    }
  }
#pragma unroll
  for (int j = 0; j < kPerThread; ++j)
    if (size[j] > 0) v[j] = v[j] * rotation_factor(w, size[j], first + thread + j * kThreads);
}

__device__ float dense_value(const EmbedArgs& args, int64_t index) {
  if (args.type == DType::f32) return static_cast<const float*>(args.data)[index];
  if (args.type == DType::f16) return __half2float(static_cast<const __half*>(args.data)[index]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(args.data)[index]);
}

// Embeds a part of a row. The grid spans blocks of columns in x, and rows in y.
template <CodeKind Kind>
__global__ void __launch_bounds__(kThreads) embed_kernel(const __grid_constant__ EmbedArgs args) {
  __shared__ float shared[kColumns];
  const int first = static_cast<int>(blockIdx.x) * kColumns;
  // Later kernels read positions and older keys before they wait, so they may start only when the
  // sampling of this step's tokens has ended.
  wait_previous_kernel();
  allow_next_kernel();
  const int64_t token = args.tokens[blockIdx.y];
  const bool known = token >= 0 && token < args.rows;
  float sum[kPerThread] = {};
  for (int pass = 0; known && pass < args.passes; ++pass) {
    float v[kPerThread];
    decode_pass<Kind>(args, pass == 0 ? args.pass[0] : args.pass[1], token, first, shared, v);
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      sum[j] += v[j];
  }
  float* x = args.x + blockIdx.y * args.ldx;
#pragma unroll
  for (int j = 0; j < kPerThread; ++j) {
    const int column = first + static_cast<int>(threadIdx.x) + j * kThreads;
    if (column >= args.cols) break;
    if (args.passes == 0 && known) sum[j] = dense_value(args, token * args.cols + column);
    x[column] = known ? sum[j] * args.scale : __int_as_float(0x7fc00000);
  }
}

void describe(const ProductCode& code, const StoredTable::Pass& stored, int64_t padded,
              PassView& w) {
  w.codebook = static_cast<const int8_t*>(stored.codebook);
  w.residual = code.residual;
  w.unit = code.unit;
  w.row_bytes = static_cast<int>(product_row_bytes(padded));
  w.group = code.group;
  w.groups = static_cast<int>(product_groups(code, padded));
}

void describe(const TrellisCode& code, const StoredTable::Pass& stored, int64_t padded,
              PassView& w) {
  w.step_bits = code.step_bits;
  w.multiplier = code.multiplier;
  w.unit = code.unit;
  w.groups = static_cast<int>(column_blocks(padded));
  w.col_scales = code.block_scales ? nullptr : static_cast<const __half*>(stored.col_scales);
}

void describe(const ScalarCode& code, const StoredTable::Pass& stored, int64_t padded,
              PassView& w) {
  w.offsets = code.has_offset ? static_cast<const __half*>(stored.offsets) : nullptr;
  w.sub_scales = static_cast<const __half*>(stored.sub_scales);
  w.bits = code.bits;
  w.row_bytes = static_cast<int>(code_bytes_per_row(code, padded));
  w.group = code.group == 0 ? static_cast<int>(padded) : code.group;
  w.groups = static_cast<int>(groups_per_row(code, padded));
  w.sub_group = code.sub_group;
  w.sub_groups = static_cast<int>(sub_groups_per_row(code, padded));
  if (code.bits < 8) std::copy_n(code.levels, 1 << code.bits, w.levels);
}

PassView pass_view(const Format& format, int pass, const StoredTable::Pass& stored,
                   int64_t padded) {
  PassView w;
  w.codes = static_cast<const uint8_t*>(stored.codes);
  w.scales = static_cast<const __half*>(stored.scales);
  if (format.kind == CodeKind::product) {
    describe(format.product, stored, padded, w);
  } else if (format.kind == CodeKind::trellis) {
    describe(format.trellis, stored, padded, w);
  } else {
    describe(format.code[pass], stored, padded, w);
  }
  const Rotation& rotation = stored.rotation;
  if (rotation.kind == RotationKind::none) return w;
  if (rotation.kind != RotationKind::hadamard) {
    throw Error(ErrorCode::usage, "token embedding", "rotation qr exists on the CPU only");
  }
  w.block = rotation.block;
  w.seed = rotation.seed;
  w.signs = rotation.signs;
  return w;
}

}  // namespace

void embed(const StoredTable& table, const int32_t* tokens, int64_t m, float* x, int64_t ldx,
           float scale, Stream stream) {
  if (m == 0) return;
  const Format& format = *table.format;
  if (m > 65535 || !has_kernel(format, Kernel::gpu_products)) {
    throw Error(ErrorCode::internal, "GPU embedding",
                std::to_string(m) + " rows, format " + std::string(format.name));
  }
  EmbedArgs args;
  args.tokens = tokens;
  args.rows = table.rows;
  args.cols = static_cast<int>(table.cols);
  args.padded = static_cast<int>(padded_cols(format, table.cols));
  args.passes = format.passes;
  args.type = format.dtype;
  args.data = table.data;
  args.x = x;
  args.ldx = ldx;
  args.scale = scale;
  for (int pass = 0; pass < format.passes; ++pass)
    args.pass[pass] = pass_view(format, pass, table.pass[pass], args.padded);
  const LaunchShape shape{dim3(static_cast<unsigned>((args.padded + kColumns - 1) / kColumns),
                               static_cast<unsigned>(m)),
                          dim3(kThreads)};
  const auto kernel = format.kind == CodeKind::product   ? embed_kernel<CodeKind::product>
                      : format.kind == CodeKind::trellis ? embed_kernel<CodeKind::trellis>
                                                         : embed_kernel<CodeKind::scalar>;
  launch("token embedding", kernel, shape, stream, args);
}

}  // namespace walsh::cuda
