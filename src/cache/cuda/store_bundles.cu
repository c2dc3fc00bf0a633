// Encodes bundles of 32 positions from fp16 rows to tiles. A block encodes one of a bundle's two
// tiles of a head, for keys or values.
#include <string>

#include "cache/cuda/store_group.cuh"
#include "kernels/cuda/attention/coded_tile.cuh"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kBundleTiles = kCacheBundle / kCacheTile;

struct StoreArgs {
  CodedView cache;
  RowPlaces rows;   // Decode uses them.
  FreshRows fresh;  // A prompt uses them; without keys, rows are in the rings.
  BundleRange bundles;
  // If set, it replaces `cache`, and one bundle of each layer is stored.
  const CodedView* layers = nullptr;

  __device__ __forceinline__ bool of_prompt() const { return fresh.keys != nullptr; }
};

// Finds fp16 rows of a head by position, in a ring or from `first` on.
struct HalfRows {
  const uint16_t* rows;
  int ring, first;

  template <int Dim>
  __device__ __forceinline__ const uint16_t* at(int position) const {
    const int64_t row = ring > 0 ? position % ring : position - first;
    return rows + row * Dim;
  }
};

struct TilePlace {
  int sequence, bundle, tile, head;
  bool key;

  __device__ __forceinline__ int position() const {
    return bundle * kCacheBundle + tile * kCacheTile;
  }
  // Returns whether this block does what is done once, with bundle 0.
  __device__ __forceinline__ bool starts() const { return bundle == 0 && tile == 0; }
};

// Returns the bundle that leaves the window at `position`; negative if there is none.
__device__ __forceinline__ int due_bundle(const CodedView& cache, int sequence, int position) {
  if (position < 1) return -1;
  const int end = stored_end(cache, sequence, position);
  return end > stored_end(cache, sequence, position - 1) ? end / kCacheBundle - 1 : -1;
}

// Returns the tile of this block. The grid spans tiles of bundles, or of layers, in x, heads in y,
// and keys and values in z.
__device__ __forceinline__ TilePlace place_of_block(const StoreArgs& args) {
  const int index = static_cast<int>(blockIdx.x) / kBundleTiles;
  TilePlace place;
  place.tile = static_cast<int>(blockIdx.x) % kBundleTiles;
  place.head = static_cast<int>(blockIdx.y);
  place.key = blockIdx.z == 0;
  if (args.rows.positions == nullptr) {
    place.sequence = args.bundles.sequence;
    place.bundle = args.bundles.first + (args.of_prompt() ? index : 0);
  } else {
    place.sequence = args.rows.sequences[index];
    place.bundle = due_bundle(args.cache, place.sequence, args.rows.positions[index]);
  }
  return place;
}

template <int Dim>
__device__ __forceinline__ HalfRows rows_of(const StoreArgs& args, const CodedView& cache,
                                            const TilePlace& place, int64_t head) {
  if (args.of_prompt()) {
    const uint16_t* fresh = place.key ? args.fresh.keys : args.fresh.values;
    return {fresh + place.head * args.fresh.capacity * Dim, 0, args.fresh.first};
  }
  const uint16_t* ring = place.key ? cache.keys.ring : cache.values.ring;
  return {ring + head * cache.ring * Dim, cache.ring, 0};
}

__device__ __forceinline__ unsigned char* tile_of(const CodedView& cache, const CodedSide& side,
                                                  const TilePlace& place) {
  const int position = place.position();
  const int64_t page = cache.pages[place.sequence * cache.per_sequence + position / kPageTokens];
  const int64_t tile =
      (page * cache.kv_heads + place.head) * kPageTiles + position % kPageTokens / kCacheTile;
  return side.tiles + tile * side.tile_bytes;
}

template <int Dim>
__device__ __forceinline__ void copy_rows(const HalfRows& rows, int position, int count, void* to) {
  constexpr int kPieces = Dim / 8;  // A row has this many pieces of 16 bytes.
  for (int i = static_cast<int>(threadIdx.x); i < count * kPieces; i += kStoreThreads) {
    const auto* from =
        reinterpret_cast<const uint4*>(rows.at<Dim>(position + i / kPieces)) + i % kPieces;
    static_cast<uint4*>(to)[i] = *from;
  }
}

// Writes the mean of the keys after the leading positions of bundle 0, all of which must be in
// `rows`, to `offsets`.
template <int Dim>
__device__ __forceinline__ void mean_key(const HalfRows& rows, float* offsets) {
  const auto mean = [](float sum) {
    return isfinite(sum) ? sum / static_cast<float>(kCacheBundle - kLeadingPositions) : 0.0f;
  };
  for (int c = 2 * static_cast<int>(threadIdx.x); c < Dim; c += 2 * kStoreThreads) {
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int j = kLeadingPositions; j < kCacheBundle; ++j) {
      const float2 v = halves(*reinterpret_cast<const uint32_t*>(rows.at<Dim>(j) + c));
      sum.x += v.x;
      sum.y += v.y;
    }
    offsets[c] = mean(sum.x);
    offsets[c + 1] = mean(sum.y);
  }
}

// Loads the offset that is subtracted from the rows of the tile. If this launch contains bundle 0,
// every block computes the offset itself.
template <int Dim>
__device__ __forceinline__ void load_offsets(const StoreArgs& args, const CodedView& cache,
                                             const TilePlace& place, const HalfRows& rows,
                                             int64_t head, float* offsets) {
  float* stored = cache.key_offsets + head * Dim;
  const bool known = args.of_prompt() ? args.bundles.first > 0 : place.bundle > 0;
  if (place.key && !known) mean_key<Dim>(rows, offsets);
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < Dim; c += kStoreThreads) {
    if (!place.key) {
      offsets[c] = 0;
    } else if (known) {
      offsets[c] = stored[c];
    } else if (place.starts()) {
      stored[c] = offsets[c];
    }
  }
  __syncthreads();
}

template <int Dim>
__device__ __forceinline__ void load_values(const HalfRows& rows, int position,
                                            TileMemory<Dim>& memory) {
  constexpr int kPieces = Dim / 8;
#pragma unroll
  for (int k = 0; k < kCacheTile * kPieces / kStoreThreads; ++k) {
    const int i = static_cast<int>(threadIdx.x) + k * kStoreThreads;
    const int row = i / kPieces, c = i % kPieces * 8;
    const uint4 words = *reinterpret_cast<const uint4*>(rows.at<Dim>(position + row) + c);
    const float2 v[4] = {halves(words.x), halves(words.y), halves(words.z), halves(words.w)};
    const float* offsets = memory.offsets + c;
    auto* to = reinterpret_cast<float4*>(memory.values + row * TileMemory<Dim>::kRow + c);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[h] = make_float4(v[2 * h].x - offsets[4 * h], v[2 * h].y - offsets[4 * h + 1],
                          v[2 * h + 1].x - offsets[4 * h + 2], v[2 * h + 1].y - offsets[4 * h + 3]);
    }
  }
  __syncthreads();
}

template <int Dim, bool Layers>
__global__ void __launch_bounds__(kStoreThreads)
    store_kernel(const __grid_constant__ StoreArgs args) {
  __shared__ TileMemory<Dim> memory;
  allow_next_kernel();
  wait_previous_kernel();
  const TilePlace place = place_of_block(args);
  if (place.bundle < 0) return;
  const CodedView& cache = Layers ? args.layers[blockIdx.x / kBundleTiles] : args.cache;
  if (Layers && place.head >= cache.kv_heads) return;
  const CodedSide& side = place.key ? cache.keys : cache.values;
  const int64_t head = int64_t{place.sequence} * cache.kv_heads + place.head;
  const HalfRows rows = rows_of<Dim>(args, cache, place, head);
  unsigned char* tile = tile_of(cache, side, place);
  if (place.starts())
    copy_rows<Dim>(rows, 0, kLeadingPositions, side.leading + head * kLeadingPositions * Dim);
  if (side.bits == 0) {
    copy_rows<Dim>(rows, place.position(), kCacheTile, tile);
    return;
  }
  load_offsets<Dim>(args, cache, place, rows, head, memory.offsets);
  load_values(rows, place.position(), memory);
  encode_tile(side, place.key, memory,
              reinterpret_cast<uint16_t*>(tile + tile_code_bytes(Dim, side.bits)));
  __syncthreads();
  pack_tile(side.bits, place.key, memory, reinterpret_cast<uint32_t*>(tile));
}

template <bool Layers>
void store(const StoreArgs& args, int64_t bundles, Stream stream) {
  const CodedView& cache = args.cache;
  const int dim = cache.head_dim;
  if (bundles <= 0) return;
  if (!is_coded_head(dim)) {
    throw Error(ErrorCode::internal, "GPU cache", "heads of " + std::to_string(dim) + " values");
  }
  const LaunchShape shape{
      dim3(static_cast<unsigned>(bundles * kBundleTiles), static_cast<unsigned>(cache.kv_heads), 2),
      dim3(kStoreThreads)};
  const auto kernel = dim == 64    ? store_kernel<64, Layers>
                      : dim == 128 ? store_kernel<128, Layers>
                                   : store_kernel<256, Layers>;
  launch("cache bundles", kernel, shape, stream, args);
}

}  // namespace

void store_bundles(const CodedView& cache, const RowPlaces& rows, int64_t m, Stream stream) {
  store<false>({cache, rows, {}, {}}, m, stream);
}

void store_bundles(const CodedView& cache, const BundleRange& bundles, const FreshRows& fresh,
                   Stream stream) {
  store<false>({cache, {}, fresh, bundles}, int64_t{bundles.last} - bundles.first, stream);
}

void store_bundle(const CodedLayers& layers, int sequence, int bundle, Stream stream) {
  StoreArgs args{{}, {}, {}, {sequence, bundle, bundle + 1}, layers.views.as<const CodedView>()};
  args.cache.kv_heads = layers.kv_heads;
  args.cache.head_dim = layers.head_dim;
  store<true>(args, layers.count, stream);
}

}  // namespace walsh::cuda
