// Bit allocation: a format for each tensor, chosen by the damage that it is expected to do and
// verified by the damage that it does (docs/allocation.md).
//
// 1. Each tensor is disturbed alone, and the divergence from the unquantized model is read
//    (sensitivity.h). 2. A knapsack gives the assignment of least total damage that fits
//    (knapsack.h). 3. It and variations of it are measured whole; the best one and the uniform
//    format are compared once more on text that was not used so far, and the better one is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/search.h"
#include "allocate/sensitivity.h"

namespace walsh {

struct AllocateOptions {
  // Exactly one of them: bits per weight of the linear layers, scales included, or bytes of the
  // whole file, the embedding and the head then being allocated as well.
  double bits_per_weight = 0;
  uint64_t file_bytes = 0;
  std::vector<const Format*> candidates;  // empty: default_candidates()
  std::vector<int32_t> text;              // tokens to measure on; empty: the model writes some
  int32_t bos = -1;                       // stands for the first token of a window; -1: none
  int64_t ctx = 512;                      // tokens per window
  int64_t windows = 8;                    // measured on, and as many again for the verification
  Probe probe = Probe::encode;
  std::string sensitivity_file;  // read if it exists, written otherwise; empty: none
  std::string conditions;        // what it must have been measured under (sensitivity_file.h)
  int64_t evaluations = 16;      // variations that are measured whole
  // Called before each step of a stage: what it does, steps done, steps of the stage at most. May
  // throw to stop.
  std::function<void(const char* stage, int64_t done, int64_t total)> progress;
};

struct TensorAllocation {
  std::string name;
  bool linear = false;
  uint64_t weights = 0, bytes = 0;
  const Format* format = nullptr;
  double alpha = 0;   // divergence per relative squared error, alone
  double damage = 0;  // divergence that the format causes alone
  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(weights); }
};

// One way to quantize the model, measured.
struct MeasuredRecipe {
  Recipe recipe;
  double bits_per_weight = 0;  // of the linear layers
  double linear = 0;           // predicted: the sum of what each tensor does alone
  double predicted = 0;        // corrected by what whole models were measured to do
  Estimate searched;           // measured where the search looked
  Estimate verified;           // measured on windows that it did not see
};

struct Allocation {
  MeasuredRecipe uniform, allocated;
  bool uniform_is_better = false;         // then it is the one to use
  std::vector<TensorAllocation> tensors;  // of the better one
  int64_t measured_tokens = 0, verified_tokens = 0;
  int64_t measured_recipes = 0;
  bool self_text = false;

  const MeasuredRecipe& chosen() const { return uniform_is_better ? uniform : allocated; }
};

// The trellis formats, and a wide one for what must not be touched.
std::vector<const Format*> default_candidates();

// `base` says all but the formats (its `type` is not used); tensors that its rules name keep what
// they say. `load` as for Model::load. Deterministic. Throws usage, limit if nothing fits, and what
// loading and encoding throw.
Allocation allocate(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
                    const LoadOptions& load);

}  // namespace walsh
