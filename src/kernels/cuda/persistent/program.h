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
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/experts/route_row.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/persistent/phase_order.h"
#include "kernels/cuda/rows/gated_heads.h"
#include "kernels/cuda/rows/rows.h"

namespace walsh::cuda {

struct FormView;
struct LaunchShape;
struct ProgramMemory;
struct ProgramPhase;
struct ExpertPhase;
struct ProgramArgs;
using PersistentKernel = void (*)(ProgramArgs);
namespace detail {
struct PassMatmul;
}

// A layer's experts, chosen by a router, and one that every row has.
struct ExpertStep {
  // Matrices that have the same shapes in all experts of a kind: those of the first one.
  struct Part {
    int64_t width = 0;  // rows of gate and up; 0: there is none
    Matmul gate, up;    // of the forms of ExpertStep, whose results the program has places for
    InputForm gated;    // what down reads
    Matmul down;
  };

  InputSource source;                   // of router, gates and ups
  std::span<const InputForm> forms;     // of it
  const DenseMatrix* router = nullptr;  // float32 [experts][width of the source]
  const DenseMatrix* share = nullptr;   // float32 [1][..], whose sigmoid weighs `shared`; null: 1
  RouteRule rule;
  const float* bias = nullptr;  // [experts] of the choice, or null
  GateFunction function = GateFunction::silu;
  int64_t stride = 0;  // bytes from the arrays of an expert to those of the next one
  Part expert, shared;
  float* stream = nullptr;  // what the weighted sum is added to
};

// A row of a delta net, from behind its first products up to the one of what it gives.
struct DeltaStep {
  ConvolveCall net;    // of one row, without out, decay and strength; a product writes `in`
  InputSource source;  // of decays and strengths
  const DenseMatrix* decay = nullptr;  // float32 [value heads][width of the source]
  const DenseMatrix* strength = nullptr;
  HeadGates gates;         // of what the rule gives, with a gain; a product writes them
  float* mixed = nullptr;  // what the next product reads
};

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
  // rope_and_store() and attend_decode() of one row, whose queries stay as they are. `gated`: every
  // head of queries has its gates behind it, rope.q being [heads][2][head_dim], and what comes out
  // is multiplied by their sigmoid. False for heads of other sizes than 64, 128 and 256, and a cap
  // of logits.
  bool attend(const RopeCall& rope, const AttentionCall& attention, const AttentionScratch& scratch,
              bool gated = false);
  // The products of decay and strength, delta_steps() of one row, and the gates of what it gives,
  // of which `mixed` itself gets nothing. False where gates have no gain, for heads that
  // can_prepare() does not know, other matrices than float32 ones, and where products of the
  // program have not made channels and gates.
  //
  // Programs with such layers, or with attention that has gates, heads of 256 values or a part of
  // a head that is rotated, have codes of 2 to 4 bits with scales for 128 columns, or none.
  bool step_delta(const DeltaStep& step);

  // route() of one row by the product of the router, prepare() and multiply_experts() of gate and
  // up, then of down, and sum_experts(): the sum is added to the stream. False for what multiply()
  // says no to, a gate other than silu, biases, plain matrices, trellis codes, a shared expert of
  // other codes than the others, widths that are no multiples of 16, more than 63 chosen experts,
  // and experts so small that a warp would have k-tiles of more than three at a time.
  bool experts(const ExpertStep& step);

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

  struct Planned;

  // What who reads an array of heads does to them: the squares of a head and its values.
  struct Heads {
    ExchangeArray* squares;
    int shift;  // values, as a power of two
    float eps;
  };

  // What gates and ups of experts give, by the number of values.
  struct Gated {
    int64_t count;
    Buffer gate, up;
  };

  // The codes of the products, as far as they decide about the kernel.
  struct Codes {
    std::set<std::pair<DecoderKind, int>> kinds;  // decoder, flush
    bool apart = false;                           // within a phase
    bool experts = false;                         // chosen by some phase
    bool mixers = false;                          // of other kinds (persistent/codes.cuh)

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
  bool add_phase(Planned plan, PhaseOrder::Work work);
  bool add_product(const InputSource& source, const InputForm& form,
                   std::span<const detail::PassMatmul> group);
  bool describe_product(const InputSource& source, const InputForm& form,
                        std::span<const detail::PassMatmul> group, Planned& plan);
  bool read_rows(int64_t count, Planned& plan);
  bool place_inputs(Planned& plan);
  bool finish_product(Planned& plan);
  ExchangeArray* add_inputs(const Planned& product);
  bool describe_codes(std::span<const detail::PassMatmul> group, ProgramPhase& phase);
  bool results_of(Planned& plan);
  // Of other mixers (program_mixers.cpp).
  bool describe_decays(const DeltaStep& step, Planned& plan);
  bool read_heads(Planned& plan);
  // Of experts (program_experts.cpp).
  ExchangeArray* add_router(const ExpertStep& step);
  bool add_gates(const ExpertStep& step, const Gated& gated, ExchangeArray& logits);
  bool add_downs(const ExpertStep& step, const Gated& gated);
  static bool describe_shared(const Matmul& first, const Matmul& shared, int set,
                              ExpertPhase& experts);
  const Gated& gated_of(int64_t count);
  void follow_choices();
  static int runs_of(const ExpertPhase& experts, int count);
  const uint8_t* signs_of(const FormView& form);
  bool schedule();
  void share_work();
  int share_tiles_of(ProgramPhase& phase, std::span<uint16_t> first) const;
  int64_t shared_bytes() const;
  bool fits() const;
  void double_inputs();
  LaunchShape shape() const;

  std::vector<ProgramPhase> phases_;
  std::vector<ExpertPhase> experts_;                     // of the phases
  std::vector<Arrays> links_;                            // of the phases
  std::map<const void*, ExchangeArray> arrays_;          // by the address that callers know
  std::vector<std::unique_ptr<ExchangeArray>> packets_;  // of shared inputs
  std::vector<Signs> signs_;
  std::map<int64_t, ExchangeArray> logits_;   // of routers, by their number
  std::map<int64_t, ExchangeArray> squares_;  // of heads, by their number
  std::map<const ExchangeArray*, Heads> heads_;
  std::vector<std::unique_ptr<Gated>> gated_;
  PhaseOrder order_;
  int count_ = 0, blocks_ = 0;
  Codes codes_;
  int pair_ = 1;                                             // blocks that make inputs together
  int most_own_k_tiles_ = 0;                                 // of an input that they make
  bool one_k_tile_ = false;                                  // is all that such an input has
  int64_t own_bytes_ = 0, input_bytes_ = 0, sum_bytes_ = 0;  // ProgramArgs
  int longest_run_ = 0;                                      // k-tiles of a warp in a phase
  int most_runs_ = 1;         // of one matrix of an expert, of a warp in a phase
  int64_t choice_bytes_ = 0;  // of shared memory, with experts
  int first_choice_ = 0;      // ProgramArgs
  Row row_;
  std::vector<uint16_t> shares_;  // ProgramArgs
  Buffer device_phases_, device_experts_, device_shares_, left_;
};

}  // namespace walsh::cuda
