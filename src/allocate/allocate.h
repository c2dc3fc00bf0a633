// Allocates bits: chooses a format for each tensor by its expected damage, and verifies the choice
// by measuring (docs/allocation.md).
//
// 1. Each tensor errs alone, and the divergence from the unquantized model is measured
// (sensitivity.h).
// 2. A knapsack finds the assignment of least total damage that fits (knapsack.h).
// 3. It and variations of it are measured as whole models; the best one and the uniform format are
// compared once more on text that was not used so far, and the better one is taken.
// No candidate is encoded for that: one code errs for all of them (stand_in.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "allocate/candidates.h"
#include "allocate/cost.h"
#include "base/device.h"
#include "eval/meters.h"
#include "model/model.h"

namespace walsh {

struct AllocateOptions {
  // Exactly one of these must be set: bits per weight of the linear layers, scales included, or
  // bytes of the whole file, in which case embedding and head are allocated as well.
  double bits_per_weight = 0;
  uint64_t file_bytes = 0;
  std::vector<const Format*> candidates;  // empty: default_candidates()
  std::vector<int32_t> text;              // tokens to measure on; empty: the model generates a text
  int32_t bos = -1;                       // replaces the first token of a window; -1: none
  int64_t ctx = 512;                      // tokens per window
  int64_t windows = 8;                    // for the search; the verification takes as many again
  std::string sensitivity_file;           // read if it exists, written otherwise; empty: none
  std::string conditions;    // what the measurement in the file must have used (sensitivity_file.h)
  int64_t evaluations = 16;  // variations that are measured as whole models
  Device device = {};        // that the model writes its text on and is measured on
  // Called before anything is measured.
  std::function<void(const AllocationCost&)> announce;
  // This is called before each step of a stage with the stage's name, the number of steps done, and
  // the most steps of the stage. May throw to stop.
  std::function<void(const char* stage, int64_t done, int64_t total)> progress;
};

struct TensorAllocation {
  std::string name;
  bool linear = false;
  uint64_t weights = 0, bytes = 0;
  const Format* format = nullptr;
  double alpha = 0;   // divergence per relative squared error of this tensor alone
  double damage = 0;  // divergence that the chosen format causes alone
  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(weights); }
};

// Describes one way to quantize the model, with its measurements.
struct MeasuredRecipe {
  Recipe recipe;               // empty in Allocation::equal
  double bits_per_weight = 0;  // of the linear layers
  double linear = 0;           // predicted: the sum of the tensors' own damages
  double predicted = 0;        // predicted, corrected by measured whole models
  Estimate searched;           // measured on the text of the search
  Estimate verified;           // measured on text that the search did not use
};

struct Allocation {
  MeasuredRecipe uniform, allocated;
  // Here all layers have one error, which lies between those of two formats as the allocated size
  // lies between theirs: this is what the same bits give without an allocation.
  MeasuredRecipe equal;
  bool uniform_is_better = false;         // then the uniform format is to be used
  std::vector<TensorAllocation> tensors;  // of the better of the two
  int64_t measured_tokens = 0, verified_tokens = 0;
  int64_t measured_recipes = 0;
  bool self_text = false;

  const MeasuredRecipe& chosen() const { return uniform_is_better ? uniform : allocated; }
};

// Returns the trellis formats, and wide formats for tensors that need them. All run on every
// device.
std::vector<const Format*> default_candidates();

// `base` determines everything but the formats (its `type` is not used); tensors that its rules
// name keep their formats. `load` is passed to Model::load. Deterministic. Throws usage, limit if
// nothing fits, and the errors of loading and encoding.
Allocation allocate(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
                    const LoadOptions& load);

}  // namespace walsh
