// Plans how much GPU memory a model will take, before anything is loaded. All sizes are bytes.
#pragma once

#include <cstdint>
#include <string>

#include "arch/config.h"
#include "codec/weight_source.h"
#include "model/cuda/sizes.h"
#include "model/kv_pages.h"
#include "model/model.h"

namespace walsh {

struct MemoryPlan {
  uint64_t weights = 0;    // It holds repacked matrices, and biases.
  uint64_t embedding = 0;  // It is stored as in the file; a plain head may share it.
  uint64_t cache = 0;      // It holds keys and values, and states of recurrent layers.
  uint64_t workspace = 0;
  int64_t max_rows = 0;  // A batch has at most this many tokens.

  uint64_t total() const { return weights + embedding + cache + workspace; }
  std::string text() const;  // It returns "weights 26.1 GiB, embedding ..., together ...".
};

// Returns the bytes of the one allocation for all matrices and biases of a layer's experts, which
// are placed in their order (base/cuda/memory_pool.h); 0 if the layer has no experts.
uint64_t expert_pool_bytes(const WeightSource& source, const LayerDesc& layer);

// Returns the most tokens of a batch: of 4096, 2048, 1024 and 512 the largest with which an
// executor's memory fits into `available` bytes (512 if none does), but no more than there can be.
// If CudaSizes::batch_rows is set, it is returned whatever is available.
int64_t choose_cuda_rows(const CudaSizes& sizes, const KvShape& cache, uint64_t available);

// Returns the plan with the largest batch that fits into `available` bytes: the memory that loading
// and an executor take, made under a counter. Throws limit with the numbers if none fits, usage for
// what the device refuses.
MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const LoadOptions& options, uint64_t available);
// Returns the plan for a model whose steps are known and have passed the checks of support.h.
MemoryPlan plan_cuda_memory(const WeightSource& source, const ModelConfig& config,
                            const ModelSteps& steps, const LoadOptions& options,
                            uint64_t available);

}  // namespace walsh
