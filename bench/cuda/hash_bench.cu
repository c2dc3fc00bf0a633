// Products with the candidates of hash_code.h, bound by memory: cold weights (more than 2 GB in
// turn), consecutive launches in a graph, including reading the input. Prints one table. Every
// kernel first multiplies a small matrix in the layout of formats/trellis.h and is compared with
// the CPU; a difference ends the program.
//
// bench_hash_gpu [STEP_BITS]...     without arguments all
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "cuda/hash_product.cuh"
#include "formats/trellis.h"

namespace walsh::cuda {
namespace {

constexpr double kPeakBytes = 4.64e12;  // measured read bandwidth of an H200
constexpr size_t kColdBytes = size_t{2200} << 20;
constexpr int kReplays = 13;

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "bench_hash_gpu: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

template <typename T>
T* on_device(const std::vector<T>& host) {
  T* device;
  check(cudaMalloc(&device, host.size() * sizeof(T)), "memory");
  check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy");
  return device;
}

template <typename T>
std::vector<T> random_words(size_t count, uint64_t seed) {
  std::vector<T> words(count);
  Random random(seed);
  for (T& w : words)
    w = static_cast<T>(random.next());
  return words;
}

struct Shape {
  int rows, cols;
};
constexpr Shape kShapes[] = {
    {4096, 4096}, {14336, 4096}, {8192, 8192}, {28672, 8192}, {128256, 4096}};

// Bit `bit` of a tile's cyclic stream.
uint32_t tile_bit(const std::byte* tile, int tile_bytes, int bit) {
  const int at = bit % (8 * tile_bytes);
  return std::to_integer<uint32_t>(tile[at / 8]) >> (at % 8) & 1u;
}

// The words of a unit from its eight tiles (hash_product.cuh).
void pack_unit(int bits, const std::byte* tiles, uint32_t* words) {
  const int tile_bytes = 16 * bits, rest = bits - 4;
  for (int lane = 0; lane < 32; ++lane) {
    const auto set = [&](int word, int bit, uint32_t value) {
      const int w = word - 4;  // index in H, which is stored in vectors of 4, 2 and 1 words
      const int pairs = rest / 2 * 2;
      const int place = word < 4    ? lane * 4 + word
                        : rest == 4 ? 128 + lane * 4 + w
                        : w < pairs ? 128 + lane * 2 + w
                                    : 128 + pairs * 32 + lane;
      words[place] |= value << bit;
    };
    for (int tile = 0; tile < kHashTiles; ++tile) {
      const int first = bits * (124 - 4 * lane);  // the lowest of the lane's own bits
      for (int i = 0; i < 4 * bits; ++i) {
        const uint32_t value = tile_bit(tiles + tile * tile_bytes, tile_bytes, first + i);
        const int high = (4 * bits - 16) * tile + i - 16;
        if (i < 16) {
          set(tile / 2, tile % 2 * 16 + i, value);
        } else {
          set(4 + high / 32, high % 32, value);
        }
      }
    }
  }
}

class Bench {
 public:
  Bench() {
    check(cudaStreamCreate(&stream_), "stream");
    check(cudaMalloc(&cold_, kColdBytes), "memory");
    const std::vector<uint32_t> words = random_words<uint32_t>(size_t{1} << 22, 1);
    for (size_t at = 0; at < kColdBytes; at += words.size() * 4) {
      const size_t n = std::min(words.size() * 4, kColdBytes - at);
      check(cudaMemcpy(reinterpret_cast<std::byte*>(cold_) + at, words.data(), n,
                       cudaMemcpyHostToDevice),
            "copy");
    }
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0), "device");
    processors_ = properties.multiProcessorCount;
    std::printf("%s, %d multiprocessors; share of %.2f TB/s\n", properties.name, processors_,
                kPeakBytes * 1e-12);
    std::printf("| rule | bits | vectors | warps | registers |");
    for (const Shape& s : kShapes)
      std::printf(" %dx%d us |", s.rows, s.cols);
    std::printf("\n");
  }

  // A row of the table for each of the given numbers of warps.
  template <HashRule kRule, int kBits, int kVectors, int... kWarps>
  void measure() {
    (row<kRule, kBits, kVectors, kWarps>(), ...);
  }

 private:
  template <HashRule kRule, int kBits, int kVectors, int kWarps>
  void row() {
    constexpr int kStages = kWarps <= 16 ? 4 : 3;
    const auto kernel = hash_product<kRule, kBits, kVectors, kWarps, kStages>;
    const auto memory = [](int cols) {
      return kWarps * kStages * 128 * kBits + HashInputs<kRule, kVectors>::bytes(cols) +
             kVectors * (cols / 256) * 8;
    };
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, kernel), "kernel");
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 226 * 1024),
          "shared memory");
    const auto launch = [&](const HashProductArgs& args) {
      kernel<<<processors_, kWarps * 32, memory(args.cols), stream_>>>(args);
    };
    const std::string_view name = name_of(kRule);
    compare(HashCode{kRule, kBits, 16, is_one_byte(kRule) ? 0x8abbcc00u : 0x8abbcd8du, 0x6e92dac9u},
            kVectors, launch);
    std::printf("| %.*s | %.1f | %d | %d | %d |", static_cast<int>(name.size()), name.data(),
                kBits / 2.0, kVectors, kWarps, attributes.numRegs);
    for (const Shape& shape : kShapes) {
      const size_t bytes = static_cast<size_t>(shape.rows) * shape.cols * kBits / 16;
      if (memory(shape.cols) > 226 * 1024) {
        std::printf(" - |");
        continue;
      }
      const double seconds = time(shape, bytes, kVectors, launch);
      std::printf(" %.2f (%.0f %%) |", seconds * 1e6,
                  100 * static_cast<double>(bytes) / seconds / kPeakBytes);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  static std::string_view name_of(HashRule rule) {
    for (const HashRuleName& named : kHashRules)
      if (named.rule == rule) return named.name;
    return "";
  }

  struct Vectors {
    std::vector<int8_t> x;
    std::vector<float> scales;
    std::vector<int> sums;

    Vectors(int vectors, int cols) : x(static_cast<size_t>(vectors) * cols) {
      Random random(3);
      for (int8_t& v : x)
        v = static_cast<int8_t>(static_cast<int>(random.below(255)) - 127);
      for (size_t at = 0; at < x.size(); at += 256) {
        int sum = 0;
        for (size_t i = 0; i < 256; ++i)
          sum += x[at + i];
        sums.push_back(sum);
        scales.push_back(static_cast<float>(0.5 + random.uniform()) * 1e-4f);
      }
    }
  };

  static HashProductArgs arguments(const HashCode& code, Shape shape, const Vectors& in, float* y) {
    HashProductArgs args{};
    args.x = on_device(in.x);
    args.scales = on_device(in.scales);
    args.sums = on_device(in.sums);
    args.y = y;
    args.rows = shape.rows;
    args.cols = shape.cols;
    args.multiplier = code.multiplier;
    args.second = code.second;
    for (int i = 0; i < 128; ++i)
      args.table[i] = quantile_levels<128>()[static_cast<size_t>(i)];
    return args;
  }
  static void release(const HashProductArgs& args) {
    for (const void* p : {static_cast<const void*>(args.x), static_cast<const void*>(args.scales),
                          static_cast<const void*>(args.sums), static_cast<const void*>(args.y)})
      cudaFree(const_cast<void*>(p));
  }

  template <typename Launch>
  void compare(const HashCode& code, int vectors, const Launch& launch) {
    constexpr Shape kSmall{1040, 768};  // more warps than rows of tiles in some launches
    const TrellisCode layout = code.layout();
    const size_t tile_bytes = 16 * static_cast<size_t>(code.step_bits);
    const size_t units = static_cast<size_t>(kSmall.rows / 16) * kSmall.cols / kHashUnitColumns;
    const std::vector<std::byte> tiles =
        random_words<std::byte>(units * kHashTiles * tile_bytes, 2);
    std::vector<uint32_t> packed(units * 32 * static_cast<size_t>(code.step_bits));
    for (size_t u = 0; u < units; ++u)
      pack_unit(code.step_bits, tiles.data() + u * kHashTiles * tile_bytes,
                packed.data() + u * 32 * static_cast<size_t>(code.step_bits));
    const Vectors in(vectors, kSmall.cols);
    const std::vector<float> zeros(static_cast<size_t>(vectors) * kSmall.rows);
    HashProductArgs args = arguments(code, kSmall, in, on_device(zeros));
    uint32_t* weights = on_device(packed);
    args.weights = weights;
    launch(args);
    check(cudaStreamSynchronize(stream_), "product");
    std::vector<float> y(zeros.size());
    check(cudaMemcpy(y.data(), args.y, y.size() * 4, cudaMemcpyDeviceToHost), "copy");
    double most = 0, size = 0;
    for (int row = 0; row < kSmall.rows; ++row) {
      std::vector<int> levels(static_cast<size_t>(kSmall.cols));
      for (int col = 0; col < kSmall.cols; ++col) {
        const std::byte* tile =
            tiles.data() +
            (static_cast<size_t>(row / 16) * (kSmall.cols / 16) + col / 16) * tile_bytes;
        const int position = tile_position(row % 16, col % 16);
        levels[static_cast<size_t>(col)] =
            hash_level(code, trellis_state(layout, tile, position / 2), position % 2);
      }
      for (int v = 0; v < vectors; ++v) {
        double exact = 0;
        for (int col = 0; col < kSmall.cols; ++col) {
          const size_t at = static_cast<size_t>(v) * kSmall.cols + col;
          exact += levels[static_cast<size_t>(col)] * in.x[at] *
                   static_cast<double>(in.scales[at / 256]);
        }
        const double got = y[static_cast<size_t>(v) * kSmall.rows + row];
        most = std::max(most, std::fabs(got - exact));
        size = std::max(size, std::fabs(exact));
      }
    }
    release(args);
    cudaFree(weights);
    if (most <= 1e-6 * size) return;
    const std::string_view name = name_of(code.rule);
    std::fprintf(stderr, "bench_hash_gpu: %.*s, %d bits per step, %d vectors: off by %g of %g\n",
                 static_cast<int>(name.size()), name.data(), code.step_bits, vectors, most, size);
    std::exit(1);
  }

  // Median seconds of a launch, among as many as read all the cold memory.
  template <typename Launch>
  double time(Shape shape, size_t bytes, int vectors, const Launch& launch) {
    const Vectors in(vectors, shape.cols);
    const std::vector<float> zeros(static_cast<size_t>(vectors) * shape.rows);
    HashProductArgs args = arguments(HashCode{}, shape, in, on_device(zeros));
    const int count = static_cast<int>(kColdBytes / bytes);
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < count; ++i) {
      args.weights = cold_ + i * (bytes / 4);
      launch(args);
    }
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&ready, graph, 0), "graph");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < kReplays; ++i) {
      check(cudaEventRecord(begin, stream_), "event");
      check(cudaGraphLaunch(ready, stream_), "graph");
      check(cudaEventRecord(end, stream_), "event");
      check(cudaEventSynchronize(end), "event");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "event");
      if (i >= 2) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    release(args);
    return times[times.size() / 2] * 1e-3 / count;
  }

  cudaStream_t stream_{};
  uint32_t* cold_ = nullptr;
  int processors_ = 0;
};

void run(const std::vector<int>& bits) {
  const auto wanted = [&](int k) {
    return bits.empty() || std::find(bits.begin(), bits.end(), k) != bits.end();
  };
  Bench bench;
  if (wanted(6)) {
    bench.measure<HashRule::raw2, 6, 1, 16, 24, 32>();
    bench.measure<HashRule::flat, 6, 1, 16, 24, 32>();
    bench.measure<HashRule::bits, 6, 1, 16, 24, 32>();
    bench.measure<HashRule::fine, 6, 1, 24>();
    bench.measure<HashRule::bell, 6, 1, 16, 24, 32>();
    bench.measure<HashRule::raw4, 6, 1, 24>();
    bench.measure<HashRule::table7, 6, 1, 16, 24, 32>();
    bench.measure<HashRule::flat, 6, 8, 16>();
    bench.measure<HashRule::bits, 6, 8, 16>();
    bench.measure<HashRule::bell, 6, 8, 16>();
    bench.measure<HashRule::table7, 6, 8, 16>();
    bench.measure<HashRule::bits, 6, 16, 12>();
    bench.measure<HashRule::bell, 6, 16, 12>();
    bench.measure<HashRule::table7, 6, 16, 12>();
  }
  if (wanted(8)) {
    bench.measure<HashRule::flat, 8, 1, 24>();
    bench.measure<HashRule::bits, 8, 1, 24>();
    bench.measure<HashRule::bell, 8, 1, 16, 24>();
    bench.measure<HashRule::table7, 8, 1, 16, 24>();
  }
  if (wanted(4)) {
    bench.measure<HashRule::bits, 4, 1, 24>();
    bench.measure<HashRule::bell, 4, 1, 24>();
    bench.measure<HashRule::table7, 4, 1, 24>();
  }
  if (wanted(5)) {
    bench.measure<HashRule::bits, 5, 1, 24>();
    bench.measure<HashRule::bell, 5, 1, 24>();
    bench.measure<HashRule::table7, 5, 1, 24>();
  }
  if (wanted(7)) {
    bench.measure<HashRule::bits, 7, 1, 24>();
    bench.measure<HashRule::bell, 7, 1, 24>();
    bench.measure<HashRule::table7, 7, 1, 24>();
  }
}

}  // namespace
}  // namespace walsh::cuda

int main(int argc, char** argv) {
  std::vector<int> bits;
  for (int i = 1; i < argc; ++i)
    bits.push_back(std::atoi(argv[i]));
  walsh::cuda::run(bits);
  return 0;
}
