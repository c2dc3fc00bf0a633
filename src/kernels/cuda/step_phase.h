// What the kernel of a whole step is told (step.h), phase by phase.
#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/attention_kernels.h"
#include "kernels/cuda/matvec.h"

namespace walsh::cuda {

enum class StepKind : int {
  product,    // of inputs that every block makes for itself, or reads from memory
  inputs,     // of a product, shared by all blocks
  attention,  // norm and rope of queries and keys, the append to the cache, and attention
};

struct StepAttention {
  uint16_t* keys = nullptr;  // fp16 [page][kv_head][kPageTokens][head_dim]
  uint16_t* values = nullptr;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  const float* cos = nullptr;  // [positions][head_dim / 2]
  const float* sin = nullptr;
  float* out = nullptr;
  float* partials = nullptr;  // [head][split][head_dim], then float2 [head][split]
  int32_t* arrived = nullptr;
  float eps = 0;
  float scale = 1;  // of logits in base 2
  int group = 0;    // query heads per cache head
  int tiles = 0;    // tiles of up to 8 heads in a group
  int heads = 0;
  int kv_heads = 0, head_dim = 0;
  int window = 0;
  int most_splits = 1;  // of a sequence, over blocks
};

struct alignas(16) StepPhase {
  StepKind kind = StepKind::product;
  bool waits = true;     // for all blocks to have ended the phase before
  bool prepares = true;  // product: makes its inputs itself
  MatvecArgs matvec;
  StepAttention attention;
};

struct StepArgs {
  const StepPhase* phases = nullptr;
  int count = 0;
  int input_bytes = 0;  // of shared memory, also room of the attention
  int sum_bytes = 0;
  uint32_t* arrived = nullptr;  // zero before and after a launch
  double* squares = nullptr;    // [unit] of a normed input that blocks make together
  // Of the row.
  const int32_t* position = nullptr;
  const int32_t* sequence = nullptr;
  const int32_t* pages = nullptr;
  int64_t pages_per_sequence = 0;
};

// A row of the cache.
struct StepRow {
  int position;
  const int32_t* pages;
};

inline constexpr int kStepWarps = 16;
inline constexpr int kKnownPhases = 8;  // in shared memory
inline constexpr int kStepPass = 512;   // values of heads that warps put together at a time
inline constexpr int kStepMaxSplits = 128;

// Memory of a block: rings of weights, inputs, sums, phases.
struct StepMemory {
  int stage_bytes, stages;

  constexpr int ring_bytes() const { return kStepWarps * stages * stage_bytes; }
};

// Rings of some 160 KB: what comes in while a phase waits for the one before.
constexpr StepMemory step_memory(int bits, int flush) {
  const int stage = bits * 512 + (flush == 32 ? 288 : 128);
  return {stage, bits == 2 ? 9 : bits == 3 ? 6 : bits == 4 ? 5 : 2};
}

// What attention needs of the inputs' room: sums of the warps, their state.
inline constexpr int kStepAttentionBytes = kStepWarps * kStepPass * 4 + kStepWarps * 8 * 8;

using StepKernel = void (*)(StepArgs);
template <int Bits>
StepKernel step_kernel(int flush);  // one file per number of bits

}  // namespace walsh::cuda
