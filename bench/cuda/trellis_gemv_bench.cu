// Ways to multiply with trellis codes, side by side: of how many of four quads the upper bits are
// masked instead of summed twice (gemv/trellis_dot.cuh). Cold weights, dependent launches in a
// graph without the preparation of inputs; results are compared with the format's levels.
//
//   bench_trellis_gemv
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "cuda/device_timing.h"
#include "formats/trellis.h"
#include "kernels/cuda/gemv/gemv_kernel.cuh"
#include "kernels/cuda/weights/matrix.h"

namespace walsh::cuda {

template <int Bits, int Quads>
struct MaskedDecoder : TrellisDecoder<Bits> {
  static constexpr int kMaskedQuads = Quads;
};
template <int Bits, int Quads>
inline constexpr bool kIsTrellis<MaskedDecoder<Bits, Quads>> = true;

namespace {

struct Shape {
  int rows, cols;
};
constexpr Shape kShapes[] = {{14336, 4096}, {8192, 8192}, {28672, 8192}};

const TrellisCode& code_of(int bits) {
  constexpr const char* kNames[] = {"tc2:h", "tc2.5:h", "tc3:h", "tc3.5:h", "tc4:h"};
  return get_format(kNames[bits - 4]).trellis;
}

// Inputs of `vectors` tokens as kernels get them, and what is needed to compare.
struct Inputs {
  std::vector<int8_t> x;  // by column
  Buffer q, scales, sums;
  int cols;

  Inputs(int vectors, int columns) : x(static_cast<size_t>(vectors) * columns), cols(columns) {
    Random random(3);
    for (int8_t& v : x)
      v = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
    q = filled<int8_t>(x.size(), [&](uint64_t i) {
      const uint64_t first = i / 128 * 128;
      for (int c = 0; c < 128; ++c)
        if (first + static_cast<uint64_t>(activation_byte(c)) == i) return x[first + c];
      return int8_t{0};
    });
    scales = filled<float>(x.size() / 128, [&](uint64_t i) { return scale(i); });
    sums = filled<int32_t>(x.size() / 128, [&](uint64_t i) {
      int32_t sum = 0;
      for (uint64_t c = 0; c < 128; ++c)
        sum += x[i * 128 + c];
      return sum;
    });
  }
  static float scale(uint64_t group) { return 1e-4f * static_cast<float>(1 + group % 7); }
};

class Bench {
 public:
  Bench() : words_(kColdBytes + (uint64_t{256} << 20)), y_(uint64_t{16} * 28672 * 4) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "device");
    blocks_ = properties.multiProcessorCount;
    std::vector<uint32_t> host((uint64_t{16} << 20) / 4);
    Random random(1);
    for (uint32_t& w : host)
      w = static_cast<uint32_t>(random.next());
    first_words_ = host;
    for (uint64_t at = 0; at < words_.bytes(); at += host.size() * 4)
      check(cudaMemcpy(words_.as<std::byte>() + at, host.data(),
                       std::min<uint64_t>(host.size() * 4, words_.bytes() - at),
                       cudaMemcpyHostToDevice),
            "copy");
    scales_ = filled<uint16_t>(uint64_t{28672} * 64, [](uint64_t) { return uint16_t{0x3c00}; });
    std::printf("%s; us and share of %.2f TB/s\n| bits | masked quads | vectors | registers |",
                properties.name, kReadBandwidth * 1e-12);
    for (const Shape& s : kShapes)
      std::printf(" %d x %d |", s.rows, s.cols);
    std::printf("\n");
  }

  template <typename Decoder, int Tiles8>
  void row(int bits, int vectors) {
    const GemvKernel kernel = gemv_kernel_of<Decoder, 128, Tiles8>;
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel)), "kernel");
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                               cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10),
          "shared memory");
    std::printf("| %.1f | %d | %d | %d |", bits / 2.0, Decoder::kMaskedQuads, vectors,
                attributes.numRegs);
    for (const Shape& shape : kShapes) {
      const Inputs in(vectors, shape.cols);
      const GemvArgs args = arguments<Tiles8>(bits, vectors, shape, in);
      const uint64_t bytes = uint64_t{16} * bits / 4 * shape.rows * shape.cols / 128 +
                             uint64_t(shape.rows) * shape.cols / 128;
      const uint64_t code_bytes = uint64_t(shape.rows) * shape.cols * bits / 16;
      const auto count = static_cast<int>(kColdBytes / code_bytes);
      const auto launch = [&](int i, Stream stream) {
        GemvArgs part = args;
        part.set[0].codes = reinterpret_cast<const uint4*>(words_.as<std::byte>() + i * code_bytes);
        launch_kernel(kernel, Decoder::kVectors, shared_bytes<Decoder, Tiles8>(args), part, stream);
      };
      const double time = seconds(count, launch);
      launch(0, nullptr);
      compare(bits, vectors, shape, in);
      std::printf(" %.2f (%.1f %%) |", time * 1e6,
                  static_cast<double>(bytes) / time / kReadBandwidth * 100);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  template <int Tiles8>
  GemvArgs arguments(int bits, int vectors, Shape shape, const Inputs& in) const {
    GemvArgs args;
    for (TileSet& set : args.set)
      set.first_tile = std::numeric_limits<int>::max();
    TileSet& set = args.set[0];
    set.first_tile = 0;
    set.scales = scales_.as<std::byte>();
    set.y = y_.as<float>();
    set.ldy = set.rows = shape.rows;
    args.tiles = shape.rows / kTileRows;
    args.k_tiles = shape.cols / kKTileColumns;
    const int slices = Tiles8 == 2 && shape.cols > 4096 ? 2 : 1;
    args.slice_k_tiles = args.k_tiles / slices;
    args.m = args.vectors = vectors;
    args.table.words[0] = code_of(bits).multiplier;
    args.scale_vectors = 2;
    args.scale_step = 32;
    args.scale_tile = args.k_tiles * 32;
    args.scale_shift = 3;
    args.q = in.q.as<int8_t>();
    args.x_scales = in.scales.as<float>();
    args.x_sums = in.sums.as<int32_t>();
    args.tiles_per_block = args.tiles / blocks_;
    args.blocks_with_more = args.tiles % blocks_;
    return args;
  }

  template <typename Decoder, int Tiles8>
  static size_t shared_bytes(const GemvArgs& args) {
    constexpr GemvMemory kMemory = gemv_memory(Decoder::kKind, 128, Tiles8, 90);
    const int inputs = args.slice_k_tiles * input_bytes(args.vectors, Tiles8, 128,
                                                        doubles_inputs(Decoder::kKind, Tiles8));
    return static_cast<size_t>(
        std::max(kMemory.ring_bytes() + kMemory.sum_bytes + inputs, 115 << 10));
  }

  void launch_kernel(GemvKernel kernel, int vectors, size_t shared, const GemvArgs& args,
                     Stream stream) const {
    cudaLaunchAttribute dependent{};
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks_));
    config.blockDim = dim3(static_cast<unsigned>(gemv_warps(vectors) * 32));
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &dependent;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, kernel, args), "launch");
  }

  // The first and the last tile of the results of the first matrix.
  void compare(int bits, int vectors, Shape shape, const Inputs& in) const {
    std::vector<float> y(static_cast<size_t>(vectors) * shape.rows);
    check(cudaDeviceSynchronize(), "kernel");
    check(cudaMemcpy(y.data(), y_.as(), y.size() * 4, cudaMemcpyDeviceToHost), "copy");
    for (const int tile : {0, shape.rows / kTileRows - 1}) {
      const std::vector<int> levels = levels_of(bits, tile, shape.cols);
      for (int n = 0; n < vectors; ++n) {
        for (int r = 0; r < kTileRows; ++r) {
          double sum = 0, size = 0;
          for (int c = 0; c < shape.cols; ++c) {
            const size_t at = static_cast<size_t>(n) * shape.cols + c;
            const double term = levels[static_cast<size_t>(r) * shape.cols + c] *
                                static_cast<double>(in.x[at]) * Inputs::scale(at / 128);
            sum += term;
            size += std::abs(term);
          }
          const double got = y[static_cast<size_t>(n) * shape.rows + tile * kTileRows + r];
          if (std::abs(got - sum) < 1e-6 * size) continue;
          std::printf("\nwrong: vector %d row %d is %g, not %g\n", n, tile * kTileRows + r, got,
                      sum);
          std::exit(1);
        }
      }
    }
  }

  // Levels [16][cols] of a tile of rows of the first matrix, from the words of its lanes.
  std::vector<int> levels_of(int bits, int tile, int cols) const {
    const TrellisCode& code = code_of(bits);
    std::vector<int> levels(static_cast<size_t>(kTileRows) * cols);
    std::vector<std::byte> stored(static_cast<size_t>(tile_bytes(code)));
    for (int column_tile = 0; column_tile < cols / kTileCols; ++column_tile) {
      const int q = column_tile / 4 % 4, t = column_tile % 4, count = 2 * bits;
      const uint64_t k_tile = static_cast<uint64_t>(tile) * (cols / kKTileColumns) +
                              static_cast<uint64_t>(column_tile / 16);
      for (int g = 0; g < 8; ++g) {
        const int lane = 4 * g + t;
        for (int i = 0; i < 2 * bits; ++i) {
          const int place = trellis_byte(bits, q, i), word = place / 4;
          const int in_vector = count - word / 4 * 4 < 4 ? 2 : 4;
          const uint64_t at = k_tile * 32 * static_cast<uint64_t>(count) +
                              static_cast<uint64_t>(word / 4 * 128 + lane * in_vector + word % 4);
          stored[static_cast<size_t>(trellis_tile_byte(bits, lane) + i)] =
              static_cast<std::byte>(first_words_[at % first_words_.size()] >> (8 * (place % 4)));
        }
      }
      for (int r = 0; r < kTileRows; ++r) {
        for (int c = 0; c < kTileCols; ++c) {
          const int position = tile_position(r, c);
          levels[static_cast<size_t>(r) * cols + column_tile * kTileCols + c] = trellis_level_i8(
              code, trellis_state(code, stored.data(), position / 2), position % 2);
        }
      }
    }
    return levels;
  }

  Buffer words_, scales_, y_;
  std::vector<uint32_t> first_words_;
  int blocks_ = 0;
};

void run() {
  Bench bench;
  for (int turn = 0; turn < 2; ++turn) {
    bench.row<TrellisDecoder<6>, 0>(6, 1);
    bench.row<MaskedDecoder<6, 2>, 0>(6, 1);
    bench.row<MaskedDecoder<6, 4>, 0>(6, 1);
  }
  bench.row<TrellisDecoder<4>, 0>(4, 1);
  bench.row<MaskedDecoder<4, 4>, 0>(4, 1);
  bench.row<TrellisDecoder<8>, 0>(8, 1);
  bench.row<MaskedDecoder<8, 4>, 0>(8, 1);
  bench.row<TrellisDecoder<6>, 1>(6, 8);
  bench.row<MaskedDecoder<6, 4>, 1>(6, 8);
  bench.row<TrellisDecoder<6>, 2>(6, 16);
}

}  // namespace
}  // namespace walsh::cuda

int main() {
  if (walsh::cuda::devices().empty()) {
    std::printf("no CUDA device: %s\n", walsh::cuda::unavailable_reason().c_str());
    return 1;
  }
  walsh::cuda::run();
}
