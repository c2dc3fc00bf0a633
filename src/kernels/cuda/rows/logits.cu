// Scales and caps logits, element by element.
#include <limits>
#include <string>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/rows.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

// Scales and caps. It uses the CUDA library's tanh, which is within 2 units in the last place,
// because this runs only once per token.
__global__ void __launch_bounds__(kThreads)
    logits_kernel(float* logits, int64_t count, float scale, float cap) {
  allow_next_kernel();
  wait_previous_kernel();
  const int64_t first = int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x;
#pragma unroll
  for (int64_t i = first; i < first + kThreads * kPerThread; i += kThreads) {
    if (i >= count) break;
    const float x = logits[i] * scale;
    logits[i] = cap == 0 ? x : cap * tanhf(x / cap);
  }
}

}  // namespace

void cap_logits(float* logits, int64_t m, int64_t vocab, float scale, float cap, Stream stream) {
  if (m == 0) return;
  constexpr int64_t kBlock = kThreads * kPerThread;
  constexpr int64_t kMost = std::numeric_limits<int>::max() * kBlock;
  if (m < 0 || vocab <= 0 || vocab > kMost / m || !(cap >= 0)) {
    throw Error(ErrorCode::internal, "GPU logits",
                std::to_string(m) + " rows of " + std::to_string(vocab) + " logits, cap " +
                    std::to_string(cap));
  }
  const LaunchShape shape{dim3(static_cast<unsigned>((m * vocab + kBlock - 1) / kBlock)),
                          dim3(kThreads)};
  launch("logits", logits_kernel, shape, stream, logits, m * vocab, scale, cap);
}

}  // namespace walsh::cuda
