// Lays out and loads a product's inputs in shared memory, where all warps of a block use them.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/gemv/gemv_kernel.h"
#include "kernels/cuda/gemv/trellis_dot.cuh"

namespace walsh::cuda {

// Says how the inputs lie. A k-tile of 256 columns has q as [chunk][vector][128], with 16-byte
// pieces swapped in odd vectors (so that the lanes of a read use different banks), then (scale, sum
// * scale) as [group][column]. For trellis codes (gemv/trellis_dot.cuh) the second member is
// zero_member of the sum, and a single vector is stored doubled.
struct InputImage {
  std::byte* k_tiles;
  int vectors, scale_columns;
  int warps;  // A block has this many warps.
  bool doubled = false;
  bool zeros = false;  // If true, the second members are zero_member.

  // Returns the bytes of q per k-tile, without scales.
  __device__ __forceinline__ int q_bytes() const {
    return vectors * kKTileColumns << static_cast<int>(doubled);
  }
  __device__ __forceinline__ int k_tile_bytes(int group) const {
    return q_bytes() + scale_columns * k_tile_groups(group) * 8;
  }
  // Returns the two members for a group's scale.
  __device__ __forceinline__ float2 scale_pair(float scale, int sum) const {
    return make_float2(scale, zeros ? zero_member(sum) : static_cast<float>(sum) * scale);
  }
  // Returns how many groups, of 32 or 128 columns each, a k-tile has.
  static __device__ int k_tile_groups(int group) {
    return group == 32 ? kKTileColumns / 32 : kKTileColumns / 128;
  }
};

// Loads and doubles the q of one vector. Each warp takes a k-tile as in the other order, and each
// lane takes 8 bytes of it.
__device__ __forceinline__ void load_doubled(const InputImage& image, const int8_t* q, int k_tiles,
                                             int k_tile_bytes, int warp, int lane) {
  constexpr int kAtOnce = 4;
  std::byte* const to = image.k_tiles + doubled_place(lane);
#pragma unroll 1
  for (int first = warp; first < k_tiles; first += kAtOnce * image.warps) {
    uint2 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int k_tile = min(first + j * image.warps, k_tiles - 1);
      v[j] = *reinterpret_cast<const uint2*>(q + k_tile * kKTileColumns + lane * 8);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int k_tile = min(first + j * image.warps, k_tiles - 1);
      const uint2 low = doubled(v[j].x), high = doubled(v[j].y);
      *reinterpret_cast<uint4*>(to + k_tile * k_tile_bytes) =
          make_uint4(low.x, low.y, high.x, high.y);
    }
  }
}

// Copies the k-tiles of a slice from prepared inputs. The constructor computes all addresses, so
// that only copies are left when the inputs become available.
class InputLoader {
 public:
  __device__ __forceinline__ InputLoader(const GemvArgs& args, const InputImage& image, int slice,
                                         int warp, int lane)
      : args_(args),
        image_(image),
        begin_(slice * args.slice_k_tiles),
        k_tiles_(min(args.k_tiles - begin_, args.slice_k_tiles)),
        groups_(InputImage::k_tile_groups(args.x_group)),
        k_tile_bytes_(image.k_tile_bytes(args.x_group)),
        warp_(warp),
        vector_(lane / 16),
        thread_(warp * 32 + lane),
        scale_(scale_source(thread_)) {
    const int piece = lane % 16;
    q_ = args.q + (begin_ + warp) * kKTileColumns + vector_ * columns() + piece * 16;
    place_ = shared_address(image.k_tiles) + warp * k_tile_bytes_ +
             (piece / 8 * args.vectors + vector_) * 128 + (piece % 8 ^ vector_) * 16;
    asm volatile("" : "+r"(scale_), "+l"(q_), "+r"(place_));
  }

  // Copies the inputs. All threads call this. A thread's first scale is loaded while it requests
  // values.
  __device__ __forceinline__ void load() {
    const Scale first = load_scale(scale_);
    if (image_.doubled) {
      load_doubled(image_, args_.q + begin_ * kKTileColumns, k_tiles_, k_tile_bytes_, warp_,
                   thread_ % 32);
    } else {
      copy_vectors();
    }
    copy_commit();
    const int step = image_.warps * 32;
    if (thread_ < scales()) store_scale(thread_, first);
#pragma unroll 1
    for (int i = thread_ + step; i < scales(); i += step)
      store_scale(i, load_scale(scale_source(i)));
    copy_wait<0>();
    __syncthreads();
  }

 private:
  __device__ __forceinline__ void copy_vectors() {
#pragma unroll 1
    for (int k_tile = warp_; k_tile < k_tiles_; k_tile += image_.warps) {
      const int8_t* from = q_;
      uint32_t to = place_;
#pragma unroll 1
      for (int n = vector_; n < args_.vectors; n += 2, from += 2 * columns(), to += 2 * 128)
        copy_async(to, from);
      q_ += image_.warps * kKTileColumns;
      place_ += image_.warps * k_tile_bytes_;
    }
  }

  struct Scale {
    float x;
    int32_t sum;
  };

  __device__ __forceinline__ int64_t columns() const {
    return int64_t{args_.k_tiles} * kKTileColumns;
  }
  // Returns how many scales a k-tile of the image has, a power of two.
  __device__ __forceinline__ int k_tile_scales() const {
    return groups_ * image_.scale_columns;
  }
  __device__ __forceinline__ int scales() const {
    return k_tiles_ * k_tile_scales();
  }
  // Returns the index in the source of scale i of the image, or < 0 if it has none.
  __device__ __forceinline__ int scale_source(int i) const {
    const int k_tile = begin_ + (i >> __popc(k_tile_scales() - 1));
    const int group = (i & (k_tile_scales() - 1)) >> __popc(image_.scale_columns - 1);
    const int n = i & (image_.scale_columns - 1);
    return n < args_.vectors && i < scales() ? (n * args_.k_tiles + k_tile) * groups_ + group : -1;
  }
  __device__ __forceinline__ Scale load_scale(int from) const {
    if (from < 0) return {0, 0};
    return {args_.x_scales[from], args_.x_sums[from]};
  }
  __device__ __forceinline__ void store_scale(int i, const Scale& s) const {
    std::byte* k_tile = image_.k_tiles + (i >> __popc(k_tile_scales() - 1)) * k_tile_bytes_;
    reinterpret_cast<float2*>(k_tile + image_.q_bytes())[i & (k_tile_scales() - 1)] =
        image_.scale_pair(s.x, s.sum);
  }

  const GemvArgs& args_;
  const InputImage& image_;
  const int begin_, k_tiles_;
  const int groups_, k_tile_bytes_;
  const int warp_, vector_, thread_;  // Half a warp has a vector's 16 pieces of a k-tile.
  int scale_;
  const int8_t* q_;
  uint32_t place_;
};

}  // namespace walsh::cuda
