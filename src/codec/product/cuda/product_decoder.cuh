// Decodes a lane's product codes (kernels/cuda/weights/matrix.h) to operands of tensor cores.
#pragma once

#include <cstdint>

#include "codec/cuda/bytes_to_f16.cuh"
#include "codec/cuda/matrix_code.h"
#include "codec/cuda/permute.cuh"

namespace walsh::cuda {

// Holds Matrix::table of the product codes that the block multiplies with.
__shared__ __align__(16) uint16_t product_table[2][256];

// Decodes product codes. The pointers of a row's 16 columns belong to two lanes, each of which has
// half of them in its registers (weights/matrix.h), so all lanes of a warp must decode together. A
// lane needs two of an entry's four values, one for each of its operands.
struct ProductDecoder {
  static constexpr DecoderKind kKind = DecoderKind::product;
  static constexpr int kWords = 12, kVectors = 3;
  static constexpr bool kSplit = false;
  static constexpr bool kTable = true;
  static constexpr bool kUnitLevels = true;

  static_assert(sizeof product_table == table_bytes(kKind));

  static __device__ __forceinline__ void load_table(const void* from) {
    constexpr int kVectorsOfTable = sizeof product_table / sizeof(uint4);
    for (auto i = threadIdx.x; i < kVectorsOfTable; i += blockDim.x)
      reinterpret_cast<uint4*>(product_table)[i] = static_cast<const uint4*>(from)[i];
  }

  // Twice the residual stands in the second byte of words[0] of `table`.
  static __device__ __forceinline__ void decode(const uint32_t* words, int i,
                                                const LevelTable& table, uint32_t& low,
                                                uint32_t& high) {
    biased(words, i, table.words[0], low, high);
    low ^= 0x80808080u;
    high ^= 0x80808080u;
  }

  static __device__ __forceinline__ void decode_f16(const uint32_t* words, int i,
                                                    const LevelTable& table, const LevelTable&,
                                                    uint32_t (&pairs)[4]) {
    uint32_t low, high;
    biased(words, i, table.words[0], low, high);
    bytes_to_f16(low, high, pairs);
  }

 private:
  // Decodes to levels plus 128, whose bytes do not carry into each other when they are added.
  static __device__ __forceinline__ void biased(const uint32_t* words, int i, uint32_t residual,
                                                uint32_t& low, uint32_t& high) {
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const uint32_t pointers = __shfl_sync(~0u, words[i % 2], (lane & ~1) | i / 2);
    const uint16_t* entries = product_table[lane & 1];
    uint32_t values[4];
#pragma unroll
    for (int v = 0; v < 4; ++v)
      values[v] = entries[pointers >> (8 * v) & 255u];
    const uint32_t first = permute(values[0], values[1], 0x5410u);
    const uint32_t second = permute(values[2], values[3], 0x5410u);
    const uint32_t signs = (words[2] >> i) & 0x11111111u;
    low = permute(first, second, 0x6420u) + permute(residual, 0, signs);
    high = permute(first, second, 0x7531u) + permute(residual, 0, upper_half(signs));
  }
};

}  // namespace walsh::cuda
