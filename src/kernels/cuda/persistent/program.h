// The persistent kernel: a decode step of one token, all layers of it, in one launch.
//
// One block per multiprocessor stays for the whole step and goes through its phases: products with
// their inputs' norm, rotation and quantization, and attention with what belongs to it. A block
// waits for the values that it needs, which say themselves that they are there
// (persistent/exchange.cuh). Weights do not depend on anything, so the warps ask for those of the
// next phases while they wait: the memory never rests. (Ideas: calm's kernel for a whole model,
// Hazy Research's "No Bubbles" megakernel.)
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/persistent/phase_order.h"
#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {

struct FormView;
struct LaunchShape;
struct ProgramMemory;
struct ProgramPhase;
struct ProgramArgs;
using PersistentKernel = void (*)(ProgramArgs);
namespace detail {
struct PassMatmul;
}

class PersistentProgram {
 public:
  PersistentProgram();
  ~PersistentProgram();
  PersistentProgram(PersistentProgram&&) noexcept;
  PersistentProgram& operator=(PersistentProgram&&) noexcept;

  // Whether the current device can run steps: from sm_90 on, with 227 KB of shared memory for a
  // block. A step needs all multiprocessors at the same time.
  static bool available();

  // prepare() and multiply() of one vector. False if this is nothing that a step can do (a
  // rotation above 256 columns, two planes, a residual, a scale per row, a product code, trellis
  // codes beside fine scales, a gate other than silu, an order in which blocks could overwrite what
  // others read): then a program cannot be had. Products may have different codes; if all have the
  // same, the kernel has fewer instructions.
  bool multiply(const InputSource& source, std::span<const InputForm> forms,
                std::span<const Matmul> products);
  // rope_and_store() and attend_decode() of one row, whose queries stay as they are. False for
  // heads of other sizes than 64 and 128, those of which a part is rotated, and a cap of logits.
  bool attend(const RopeCall& rope, const AttentionCall& attention,
              const AttentionScratch& scratch);

  bool empty() const { return count_ == 0; }
  // Nothing can be added any more. False if the device has too little shared memory, or products
  // are too far apart.
  bool finish();
  // The results are those of the single launches but for the order of float additions.
  void launch(Stream stream) const;

 private:
  // The row that all attention is for.
  struct Row {
    RowPlaces places;
    PageTable table;
  };

  struct Signs {
    uint32_t seed;
    int cols;
    Buffer bits;
  };

  // The arrays that a phase reads and writes, as its tags.
  struct Arrays {
    std::array<ExchangeArray*, kPhaseArrays> in{}, out{};
  };

  // The codes of the products, as far as they decide about the kernel.
  struct Codes {
    std::set<std::pair<DecoderKind, int>> kinds;  // decoder, flush
    bool apart = false;                           // within a phase

    bool several() const { return kinds.size() > 1 || apart; }
    bool wide() const;
    bool trellis() const;
    bool known() const;  // whether there is a kernel
    ProgramMemory memory() const;
    PersistentKernel kernel() const;
  };

  static std::vector<ExchangeArray*> present(
      const std::array<ExchangeArray*, kPhaseArrays>& arrays);
  ExchangeArray* array(const void* place) { return &arrays_[place]; }
  bool add_phase(ProgramPhase phase, PhaseOrder::Work work, const Arrays& arrays);
  bool add_product(const InputSource& source, const InputForm& form,
                   std::span<const detail::PassMatmul> group);
  ExchangeArray* add_inputs(const ProgramPhase& product, const Arrays& sources);
  bool describe_codes(std::span<const detail::PassMatmul> group, ProgramPhase& phase);
  bool results_of(ProgramPhase& phase, Arrays& arrays);
  const uint8_t* signs_of(const FormView& form);
  bool schedule();
  void share_work();
  int share_tiles_of(ProgramPhase& phase, std::span<uint16_t> first) const;
  int64_t shared_bytes() const;
  bool fits() const;
  void double_inputs();
  LaunchShape shape() const;

  std::vector<ProgramPhase> phases_;
  std::vector<Arrays> links_;                            // of the phases
  std::map<const void*, ExchangeArray> arrays_;          // by the address that callers know
  std::vector<std::unique_ptr<ExchangeArray>> packets_;  // of shared inputs
  std::vector<Signs> signs_;
  PhaseOrder order_;
  int count_ = 0, blocks_ = 0;
  Codes codes_;
  int pair_ = 1;                                             // blocks that make inputs together
  int most_own_k_tiles_ = 0;                                 // of an input that they make
  bool one_k_tile_ = false;                                  // is all that such an input has
  int64_t own_bytes_ = 0, input_bytes_ = 0, sum_bytes_ = 0;  // ProgramArgs
  int longest_run_ = 0;                                      // k-tiles of a warp in a phase
  Row row_;
  std::vector<uint16_t> shares_;  // ProgramArgs
  Buffer device_phases_, device_shares_, left_;
};

}  // namespace walsh::cuda
