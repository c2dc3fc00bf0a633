// An experiment outside the library: the forward pass of the tile search of tc3:h with an integer
// metric, whose branch costs are tensor core products. With targets rounded to half a level's unit,
// X, the cost of a state with levels l is, up to a part that all states of a step share, 2 (l0^2 +
// l1^2) - 4 (X0 l0 + X1 l1), and l is a sum of two bytes of the state's product, which are the
// operands as they are. An m16n8k32 product takes 8 classes with two first bits and 8 tiles, six
// planes of eight-bit targets in lanes 0 to 2 of four, the squares in lane 3, and starts from the
// costs of the previous states.
//
// Prints T states/s and the corresponding weights/s, for the whole pass and with parts left out,
// and checks the costs of a few steps against plain code. Arguments: [index of the device].
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/cuda/device.h"
#include "base/random.h"
#include "formats/trellis.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using namespace cuda;

constexpr int kStates = 1 << 16, kStepBits = 6, kFan = 64, kClasses = 1024;
constexpr int kTiles = 16;   // per block, two products side by side
constexpr int kSteps = 256;  // a window around the seam, then the tile
constexpr int kThreads = 512;
constexpr int kPlanes = 6;
constexpr uint32_t kMask = 0x7f7f7f7f;

struct Args {
  uint32_t multiplier = 0;
  const uint16_t* squares = nullptr;  // [class][first bits]: (l0^2 + l1^2) by 127: quotient, rest
  const uint32_t* planes = nullptr;   // [steps][groups of 8 tiles][32 lanes][2]: operand B
  int32_t* best = nullptr;            // [blocks][steps][classes][kTiles]
  int steps = 0;
};

__device__ __forceinline__ void multiply(int32_t (&d)[4], const uint32_t (&a)[2],
                                         const uint32_t (&b)[2], const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}

// Products of equal time with meaningless sums: with half the depth, and with halves.
__device__ __forceinline__ void multiply_16(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b,
                                            const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}
__device__ __forceinline__ void multiply_halves(int32_t (&d)[4], const uint32_t (&a)[2], uint32_t b,
                                                const int32_t (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%7,%8,%9,%10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
}

// What is left out or replaced to see its cost; only the first variant computes the costs.
enum class Variant {
  all,
  minima_of_two,  // instead of three
  no_minima,      // a logical operation instead
  depth_16,       // of the products
  halves,         // instead of bytes
  no_squares
};
constexpr const char* kVariantNames[] = {"all",      "minima of two", "no minima",
                                         "depth 16", "halves",        "no squares"};

template <Variant kVariant>
__device__ __forceinline__ void keep_least(int32_t& least, int32_t a, int32_t b) {
  if constexpr (kVariant == Variant::no_minima) {
    least ^= a ^ b;
  } else if constexpr (kVariant == Variant::minima_of_two) {
    asm volatile("min.s32 %0, %0, %1;" : "+r"(least) : "r"(a));
    asm volatile("min.s32 %0, %0, %1;" : "+r"(least) : "r"(b));
  } else {
    least = __vimin3_s32(least, a, b);
  }
}

// A warp has 64 neighbouring classes, whose predecessors are the same 64 classes.

template <Variant kVariant>
__global__ void __launch_bounds__(kThreads, 1) forward_kernel(const __grid_constant__ Args args) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* squares = reinterpret_cast<uint16_t*>(memory);
  auto* costs = reinterpret_cast<int32_t*>(memory + 2 * kStates);  // [classes][kTiles]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int row = lane / 4, part = lane % 4;
  for (int i = thread; i < kStates / 8; i += kThreads)
    reinterpret_cast<uint4*>(squares)[i] = reinterpret_cast<const uint4*>(args.squares)[i];
  for (int i = thread; i < kClasses * kTiles; i += kThreads)
    costs[i] = 0;
  int32_t* best = args.best + static_cast<int64_t>(blockIdx.x) * args.steps * kClasses * kTiles;
  const uint32_t mask = part < 3 ? kMask : 0;
  const uint32_t step_product = static_cast<uint32_t>(kClasses) * args.multiplier;
  const int first_class = warp * 64 + row;
  __syncthreads();
  for (int t = 0; t < args.steps; ++t) {
    uint32_t b[2][2];
    for (int n = 0; n < 2; ++n) {
      const uint32_t* from = args.planes + ((static_cast<int64_t>(t) * 2 + n) * 32 + lane) * 2;
      b[n][0] = from[0];
      b[n][1] = from[1];
    }
    int32_t least[8][2][2];
#pragma unroll
    for (int i = 0; i < 32; ++i)
      least[i / 4][i / 2 % 2][i % 2] = INT32_MAX;
    uint32_t product = static_cast<uint32_t>(first_class) * args.multiplier;
#pragma unroll 1
    for (int first = 0; first < kFan; first += 2) {
      int32_t before[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = (first + i % 2) * 16 + warp;
        const int2 two =
            *reinterpret_cast<const int2*>(costs + from * kTiles + i / 2 * 8 + 2 * part);
        before[i / 2][i % 2 * 2] = two.x;
        before[i / 2][i % 2 * 2 + 1] = two.y;
      }
#pragma unroll
      for (int m = 0; m < 8; ++m) {
        // [class][first bits / 2]: two squares per word; lines of neighbouring classes are rotated
        // so that lanes use different banks.
        uint32_t two = 0;
        const int p = first_class + 8 * m;
        if (kVariant != Variant::no_squares && part == 3) {
          two = *reinterpret_cast<const uint32_t*>(squares + p * kFan + (first ^ (row * 2)));
        }
        const uint32_t of = product + static_cast<uint32_t>(8 * m) * args.multiplier;
        const uint32_t a[2] = {(of & mask) | two, ((of + step_product) & mask) | two >> 16};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          int32_t d[4];
          if constexpr (kVariant == Variant::depth_16) {
            multiply_16(d, a, b[n][0], before[n]);
          } else if constexpr (kVariant == Variant::halves) {
            multiply_halves(d, a, b[n][0], before[n]);
          } else {
            multiply(d, a, b[n], before[n]);
          }
          keep_least<kVariant>(least[m][n][0], d[0], d[2]);
          keep_least<kVariant>(least[m][n][1], d[1], d[3]);
        }
      }
      product += 2 * step_product;
    }
    __syncthreads();
    int32_t* out = best + static_cast<int64_t>(t) * kClasses * kTiles;
#pragma unroll
    for (int m = 0; m < 8; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int at = (first_class + 8 * m) * kTiles + 8 * n + 2 * part;
        const int2 two = {least[m][n][0], least[m][n][1]};
        *reinterpret_cast<int2*>(costs + at) = two;
        *reinterpret_cast<int2*>(out + at) = two;
      }
    }
    __syncthreads();
  }
}

// Bytes of operand B: targets x[steps][tiles][2] in units of a level.
std::vector<uint32_t> planes_of(const std::vector<int>& y) {
  std::vector<uint32_t> planes(static_cast<size_t>(kSteps) * 2 * 32 * 2);
  for (int t = 0; t < kSteps; ++t) {
    for (int n = 0; n < 2; ++n) {
      for (int lane = 0; lane < 32; ++lane) {
        const int tile = 8 * n + lane / 4, part = lane % 4;
        for (int half = 0; half < 2; ++half) {
          uint8_t bytes[4] = {1, 127, 0, 0};
          for (int v = 0; part < 3 && v < 4; ++v) {
            const int plane = half * 3 + part;
            const int value = y[static_cast<size_t>((t * kTiles + tile) * 2 + v % 2)];
            // The part in one plane: equal shares, with the remainder spread.
            const int low = value >= 0 ? value / kPlanes : -((-value + kPlanes - 1) / kPlanes);
            bytes[v] = static_cast<uint8_t>(low + (plane < value - low * kPlanes ? 1 : 0));
          }
          uint32_t word = 0;
          for (int i = 0; i < 4; ++i)
            word |= static_cast<uint32_t>(bytes[i]) << (8 * i);
          planes[static_cast<size_t>(((t * 2 + n) * 32 + lane) * 2 + half)] = word;
        }
      }
    }
  }
  return planes;
}

std::vector<int> squares_of(const TrellisCode& code) {
  std::vector<int> squares;
  for (uint32_t s = 0; s < kStates; ++s) {
    const int a = trellis_level_i8(code, s, 0), b = trellis_level_i8(code, s, 1);
    squares.push_back(a * a + b * b);
  }
  return squares;
}

// Costs of a tile after `steps` steps, computed by plain code.
std::vector<int> plain_costs(const TrellisCode& code, const std::vector<int>& y, int tile,
                             int steps) {
  const std::vector<int> squares = squares_of(code);
  std::vector<int> costs(kClasses), next(kClasses);
  for (int t = 0; t < steps; ++t) {
    const int* of = y.data() + (t * kTiles + tile) * 2;
    std::fill(next.begin(), next.end(), INT32_MAX);
    for (uint32_t s = 0; s < kStates; ++s) {
      const uint32_t bytes = s * code.multiplier & kMask;
      const auto byte = [&](int i) { return static_cast<int>(bytes >> (8 * i) & 127); };
      const int cost = costs[s >> kStepBits] + 2 * squares[s] + of[0] * (byte(0) + byte(2)) +
                       of[1] * (byte(1) + byte(3));
      int& to = next[s % kClasses];
      to = std::min(to, cost);
    }
    costs.swap(next);
  }
  return costs;
}

template <Variant kVariant>
void measure(const Args& args, int blocks, Stream stream) {
  const auto kernel = forward_kernel<kVariant>;
  allow_most_shared_memory(reinterpret_cast<const void*>(kernel), "experiment");
  const size_t shared = 2 * kStates + kClasses * kTiles * sizeof(int32_t);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  float least = 1e9;
  for (int i = 0; i < 4; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    kernel<<<static_cast<unsigned>(blocks), kThreads, shared, stream>>>(args);
    check_launch("experiment");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "experiment");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    least = std::min(least, ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  const double rate = double{kSteps} * kStates * kTiles * blocks / (least * 1e-3);
  std::printf("%-14s %6.2f T states/s %6.0f M weights/s\n",
              kVariantNames[static_cast<int>(kVariant)], rate * 1e-12, rate / kStates * 1e-6);
}

int run(int index) {
  const DeviceInfo device = use_device(index);
  const TrellisCode& code = get_format("tc3:h").trellis;
  Random random(3);
  std::vector<int> y;
  for (int i = 0; i < kSteps * kTiles * 2; ++i) {
    const double x = random.normal() / static_cast<double>(code.prescale * code.unit);
    y.push_back(std::clamp(static_cast<int>(-4 * x), -762, 762));
  }
  const std::vector<int> squares = squares_of(code);
  std::vector<uint16_t> packed(kStates);
  for (int s = 0; s < kStates; ++s) {
    const int p = s % kClasses, first = s / kClasses, n = squares[static_cast<size_t>(s)];
    packed[static_cast<size_t>(p * kFan + (first ^ (p % 8 * 2)))] =
        static_cast<uint16_t>(n / 127 << 8 | n % 127);
  }
  const std::vector<uint32_t> planes = planes_of(y);
  const int blocks = device.multiprocessors;
  const uint64_t of_block = uint64_t{kSteps} * kClasses * kTiles * sizeof(int32_t);
  const Buffer squares_there(packed.size() * 2), planes_there(planes.size() * 4),
      best(of_block * static_cast<uint64_t>(blocks));
  OwnedStream stream;
  copy_to_device(squares_there.as(), packed.data(), packed.size() * 2, stream.get());
  copy_to_device(planes_there.as(), planes.data(), planes.size() * 4, stream.get());
  Args args{code.multiplier, squares_there.as<uint16_t>(), planes_there.as<uint32_t>(),
            best.as<int32_t>(), kSteps};
  std::printf("%s\n", device.name.c_str());
  measure<Variant::minima_of_two>(args, blocks, stream.get());
  measure<Variant::no_minima>(args, blocks, stream.get());
  measure<Variant::depth_16>(args, blocks, stream.get());
  measure<Variant::halves>(args, blocks, stream.get());
  measure<Variant::no_squares>(args, blocks, stream.get());
  measure<Variant::all>(args, blocks, stream.get());
  constexpr int kChecked = 5;
  std::vector<int32_t> row(kClasses * kTiles);
  copy_to_host(row.data(), best.as<int32_t>() + (kChecked - 1) * kClasses * kTiles, row.size() * 4,
               stream.get());
  synchronize(stream.get());
  int wrong = 0;
  for (int tile = 0; tile < kTiles; ++tile) {
    const std::vector<int> plain = plain_costs(code, y, tile, kChecked);
    for (int p = 0; p < kClasses; ++p)
      wrong += plain[static_cast<size_t>(p)] != row[static_cast<size_t>(p * kTiles + tile)];
  }
  std::printf("%d of %d costs differ from plain code\n", wrong, kClasses * kTiles);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace walsh

int main(int argc, char** argv) {
  try {
    return walsh::run(argc > 1 ? std::atoi(argv[1]) : 0);
  } catch (const walsh::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return walsh::exit_status(e.code());
  }
}
