// Holds the device memory of an executor, except the weights, in one place. An executor allocates
// it; the plan of memory makes it under a counter (base/cuda/counted_memory.h), so that what is
// planned is what is allocated.
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

  std::vector<cuda::KvPool> pools;  // Each layer has one; there are none with a coded cache.
  cuda::Buffer page_table;          // The shape is [sequences][pages of a sequence], int32.
  cuda::PageTable table;
  std::unique_ptr<CudaCodedCache> coded;  // It is null for an fp16 cache.
};

struct CudaMemory {
  CudaMemory(const CudaSizes& sizes, const KvShape& shape, int64_t max_rows);

  static constexpr int64_t kStaged = 4;  // `staged` has this many arrays.
  struct Rope {
    int pairs = 0;
    float magnitude = 1;    // Turned values are multiplied by this.
    cuda::Buffer cos, sin;  // The shape of each is [positions][pairs], float.
  };

  // A batch has at most max_rows rows; logits of logit_rows rows are computed together.
  int64_t max_rows, logit_rows;
  int64_t history_stride;  // Sampling remembers this many tokens.
  CudaKvMemory cache;
  CudaVectors vectors;
  CudaDeltaNet delta_net;
  CudaLinear linear;
  CudaExperts experts;
  std::vector<Rope> ropes;  // They are in the order of ModelConfig::ropes.
  // These are in the order of ModelSteps::query_factors, float [positions].
  std::vector<cuda::Buffer> query_factors;
  std::array<cuda::Buffer, kRowKinds>
      rows;  // Rows is the index. Each is float [max_rows][stride]; logits are [logit_rows][vocab].
  cuda::AttentionScratch attention_scratch;
  cuda::HeadScratch latent_heads;  // Prompts use it where the cache has latents.
  // This holds int32 [kStaged][max_rows]: tokens, positions and sequences of the batch, and the
  // rows whose logits are wanted.
  cuda::Buffer staged;
  cuda::Buffer sample_states, history, next;  // Each sequence has an entry.
  // It is empty if the device cannot sample from the vocabulary.
  cuda::SampleScratch sample_scratch;
};

// This much memory is left to the driver, cuBLASLt, recorded graphs and the phases of a program.
inline constexpr uint64_t kCudaReserve = uint64_t{256} << 20;

// Returns how many bytes CudaMemory takes, plus the reserve.
uint64_t cuda_memory_bytes(const CudaSizes& sizes, const KvShape& shape, int64_t max_rows);

}  // namespace walsh
