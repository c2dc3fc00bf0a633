// Holds the device memory of an executor beside the weights, in one place: an executor makes it,
// and a plan makes it under a counter (base/cuda/counted_memory.h), so that what is planned is what
// is allocated.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/latent_prompt.h"
#include "kernels/cuda/sampling/sampling.h"
#include "model/cuda/coded_cache.h"
#include "model/cuda/delta_net.h"
#include "model/cuda/experts.h"
#include "model/cuda/linear.h"
#include "model/cuda/vectors.h"
#include "model/kv_pages.h"

namespace walsh {

// Holds keys and values of all layers: pools of fp16 pages, or coded caches.
struct CudaKvMemory {
  CudaKvMemory(const ModelConfig& config, const CacheTypes& types, const KvShape& shape,
               int64_t max_rows);

  std::vector<cuda::KvPool> pools;  // per layer, or none
  cuda::Buffer page_table;          // int32 [sequences][pages of a sequence]
  cuda::PageTable table;
  std::unique_ptr<CudaCodedCache> coded;  // or null: fp16
};

struct CudaMemory {
  CudaMemory(const CudaSizes& sizes, const KvShape& shape, int64_t max_rows);

  static constexpr int64_t kStaged = 4;  // arrays of `staged`
  struct Rope {
    int pairs = 0;
    float magnitude = 1;    // of what is rotated
    cuda::Buffer cos, sin;  // float [positions][pairs]
  };

  int64_t max_rows, logit_rows;  // of a batch; of logits that are computed together
  int64_t history_stride;        // ids of a sequence that sampling can remember
  CudaKvMemory cache;
  CudaVectors vectors;
  CudaDeltaNet delta_net;
  CudaLinear linear;
  CudaExperts experts;
  std::vector<Rope> ropes;                  // as ModelConfig::ropes
  std::vector<cuda::Buffer> query_factors;  // as ModelSteps has them: float [positions]
  std::array<cuda::Buffer, kRowKinds>
      rows;  // by Rows: float [max_rows][stride]; of logits [logit_rows][vocab]
  cuda::AttentionScratch attention_scratch;
  cuda::HeadScratch latent_heads;  // of prompts, where the cache has latents
  // This is int32 [kStaged][max_rows]: tokens, positions and sequences of the batch, and the rows
  // whose logits are wanted.
  cuda::Buffer staged;
  cuda::Buffer sample_states, history, next;  // per sequence
  cuda::SampleScratch sample_scratch;         // if the vocabulary can be sampled
};

// This much is left to the driver, to cuBLASLt, to recorded graphs and to the phases of a step.
inline constexpr uint64_t kCudaReserve = uint64_t{256} << 20;

// Returns how many bytes CudaMemory will take, plus the reserve.
uint64_t cuda_memory_bytes(const CudaSizes& sizes, const KvShape& shape, int64_t max_rows);

}  // namespace walsh
