// A decoding step of one token in one launch.
//
// One block per multiprocessor stays for the whole step and goes through its phases: products with
// their inputs' norm, rotation and quantization, and attention with what belongs to it. Blocks wait
// for each other between phases by a counter in memory. Weights do not depend on anything, so the
// warps ask for those of the next phases while they wait: the memory never rests. (Ideas: calm's
// kernel for a whole model, Hazy Research's "No Bubbles" megakernel.)
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"

namespace walsh::cuda {

struct StepPhase;
namespace detail {
struct PassProduct;
}

class StepProgram {
 public:
  StepProgram();
  ~StepProgram();
  StepProgram(StepProgram&&) noexcept;
  StepProgram& operator=(StepProgram&&) noexcept;

  // Whether the current device can run steps: from sm_90 on, with 227 KB of shared memory for a
  // block. A step needs all multiprocessors at the same time.
  static bool available();

  // prepare() and multiply() of one vector. False if this is nothing that a step can do (a
  // rotation above 256 columns, two planes, other bits than before): then a program cannot be had.
  bool multiply(const InputSource& source, std::span<const InputForm> forms,
                std::span<const Product> products);
  // rope_and_store() and attend_rows() of one row, whose queries stay as they are.
  bool attend(const RopeCall& rope, const AttentionCall& attention,
              const AttentionScratch& scratch);

  bool empty() const { return count_ == 0; }
  // Takes the device memory; nothing can be added any more.
  void finish();
  // The results are those of the single launches but for the order of float additions.
  void launch(Stream stream) const;

 private:
  // The row that all attention is for.
  struct Row {
    RowPlaces places;
    PageTable table;
  };

  bool add_product(const InputSource& source, const InputForm& form,
                   std::span<const detail::PassProduct> group, bool waits);

  int64_t shared_bytes() const;

  std::vector<StepPhase> phases_;
  int count_ = 0;
  int bits_ = 0, flush_ = 0;  // of all products
  int64_t input_bytes_ = 0, sum_bytes_ = 0;
  Row row_;
  Buffer device_phases_, arrived_, squares_;
};

}  // namespace walsh::cuda
