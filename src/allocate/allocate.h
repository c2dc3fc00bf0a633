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
  // Exactly one of these must be set. The first counts bits per weight of the linear layers, scales
  // included; the second counts bytes of the whole file, and then embedding and head are allocated
  // as well.
  double bits_per_weight = 0;
  uint64_t file_bytes = 0;
  std::vector<const Format*> candidates;  // if empty, default_candidates() are used
  // Divergence is measured on these tokens; if there are none, the model generates a text.
  std::vector<int32_t> text;
  // This token replaces the first one of a window; -1 replaces none.
  int32_t bos = -1;
  int64_t ctx = 512;    // a window has this many tokens
  int64_t windows = 8;  // the search uses this many, the verification as many again
  // The sensitivities are read from this file if it exists, otherwise written to it; empty means no
  // file.
  std::string sensitivity_file;
  // The measurement in the file must have been made under these (sensitivity_file.h).
  std::string conditions;
  int64_t evaluations = 16;  // this many variations are measured as whole models
  // The model writes its text and is measured on this device.
  Device device = {};
  // This is called before anything is measured.
  std::function<void(const AllocationCost&)> announce;
  // This is called before each step of a stage with the stage's name, the number of steps done, and
  // the most steps of the stage. It may throw to stop.
  std::function<void(const char* stage, int64_t done, int64_t total)> progress;
};

struct TensorAllocation {
  std::string name;
  bool linear = false;
  uint64_t weights = 0, bytes = 0;
  const Format* format = nullptr;
  double alpha = 0;   // it is the divergence per relative squared error of this tensor alone
  double damage = 0;  // the chosen format causes this divergence alone
  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(weights); }
};

// Describes one way to quantize the model, with its measurements.
struct MeasuredRecipe {
  Recipe recipe;               // it is empty in Allocation::equal
  double bits_per_weight = 0;  // it counts the linear layers
  double linear = 0;           // it is predicted as the sum of the tensors' own damages
  double predicted = 0;        // it is `linear`, corrected by measured whole models
  Estimate searched;           // it was measured on the text of the search
  Estimate verified;           // it was measured on text that the search did not use
};

struct Allocation {
  MeasuredRecipe uniform, allocated;
  // Here all layers have one error, which lies between those of two formats as the allocated size
  // lies between theirs: this is what the same bits give without an allocation.
  MeasuredRecipe equal;
  bool uniform_is_better = false;         // if so, the uniform format is to be used
  std::vector<TensorAllocation> tensors;  // they belong to the better of the two
  int64_t measured_tokens = 0, verified_tokens = 0;
  int64_t measured_recipes = 0;
  bool self_text = false;

  const MeasuredRecipe& chosen() const { return uniform_is_better ? uniform : allocated; }
};

// Returns the trellis formats, and wide formats for tensors that need them. All run on every
// device.
std::vector<const Format*> default_candidates();

// Chooses the formats. `base` determines everything else (its `type` is not used), and tensors that
// its rules name keep their formats. `load` is passed to Model::load. The result is deterministic.
// Throws usage, limit if nothing fits, and the errors of loading and encoding.
Allocation allocate(const OpenCompressor& open, const Recipe& base, const AllocateOptions& options,
                    const LoadOptions& load);

}  // namespace walsh
