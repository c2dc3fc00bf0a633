// The persistent kernel computes one decode step of one token, or of a token each of a few
// sequences, with all layers in one launch.
//
// One block per multiprocessor stays for the whole step and goes through its phases: products,
// including the norm, rotation and quantization of their inputs, and attention with norm, rope and
// the append to the cache. A block waits for the values that it needs, and a tag bit in each value
// shows that it has arrived (persistent/exchange.cuh). Weights depend on nothing, so warps request
// those of the next phases while they wait, and the memory is never idle. (Ideas: calm's kernel for
// a whole model, Hazy Research's "No Bubbles" megakernel.)
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/coded_pages.h"
#include "kernels/cuda/delta/delta.h"
#include "kernels/cuda/experts/route_row.h"
#include "kernels/cuda/gemv/gemv.h"
#include "kernels/cuda/persistent/block_work.h"
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

// Describes the routed experts of a layer, with their router, and the shared expert.
struct ExpertStep {
  // Holds the matrices of one kind of experts. All experts of the kind have the same shapes, and
  // these are the matrices of the first one.
  struct Part {
    // It is the number of rows of gate and up; 0: the kind does not exist.
    int64_t width = 0;
    // Their inputs are ExpertStep::forms; the program has the places of the results.
    Matmul gate, up;
    InputForm down_form;  // down reads it.
    Matmul down;
  };

  InputSource source;                   // Router, gate and up read it.
  std::span<const InputForm> forms;     // They are its forms.
  const DenseMatrix* router = nullptr;  // It is float32 [experts][width of the source].
  // It is float32 [1][..]; its sigmoid weighs `shared`; null: the weight is 1.
  const DenseMatrix* share = nullptr;
  RouteRule rule;
  const float* bias = nullptr;  // It is [experts] and added for the choice only, or null.
  GateFunction function = GateFunction::silu;
  // The arrays of neighbouring experts are this many bytes apart.
  int64_t stride = 0;
  Part expert, shared;
  // It is the residual stream, to which the weighted sum is added.
  float* stream = nullptr;
};

// Describes one row of a delta net: everything between the products that make its inputs and the
// one that reads its output.
struct DeltaStep {
  // It is for one row, without out, decay and strength; a product writes `in`.
  ConvolveCall net;
  InputSource source;                  // It is the input of decays and strengths.
  const DenseMatrix* decay = nullptr;  // It is float32 [value heads][width of the source].
  const DenseMatrix* strength = nullptr;
  // These are for the output, with a gain; a product writes them.
  HeadGates gates;
  float* mixed = nullptr;  // The next product reads this array.
};

class PersistentProgram {
 public:
  // Makes a program for steps of one row.
  PersistentProgram();
  // Makes a program for steps of up to `rows` rows, which is 1, 2 or 4. With several rows there
  // must be no experts, other mixers and coded caches, and all products must have the same scalar
  // code with scales for at least 128 columns.
  explicit PersistentProgram(int rows);
  ~PersistentProgram();
  PersistentProgram(PersistentProgram&&) noexcept;
  PersistentProgram& operator=(PersistentProgram&&) noexcept;

  // Returns whether the current device can run a step. It needs sm_90 or later and 227 KB of shared
  // memory per block. A step occupies all multiprocessors at the same time.
  static bool available();

  // Adds prepare() and multiply() of one vector per row. Returns false for what a step cannot do: a
  // rotation of more than 256 columns, two planes, a residual, a scale per row, a product code,
  // trellis codes beside fine scales, a gate other than silu, or an order in which blocks could
  // overwrite what others still read. The program cannot be used then. Products may have different
  // codes; if all have the same, a kernel with fewer instructions is used.
  bool multiply(const InputSource& source, std::span<const InputForm> forms,
                std::span<const Matmul> products);
  // Adds rope_and_store() and attend_decode() of the rows. The queries in memory stay unchanged.
  // With `gated`, rope.q is [heads][2][head_dim]: every query head is followed by its gates, whose
  // sigmoid multiplies the output. Returns false for head sizes other than 64, 128 and 256, and for
  // capped logits.
  bool attend(const RopeCall& rope, const AttentionCall& attention, const AttentionScratch& scratch,
              bool gated = false);
  // Does the same over a coded cache, as keep_rows() and attend_decode() do there (cache/cuda).
  // Bundles that leave the window at this row have been stored before. Returns false also for other
  // mixers, for heads of 256 values, and if keys and values do not have the same number of bits, 2,
  // 3, 4 or 8.
  bool attend_coded(const RopeCall& rope, const AttentionRows& attention, const CodedShape& cache,
                    const CodedPages& keys, const CodedPages& values,
                    const AttentionScratch& scratch);
  // Adds the products of decay and strength, delta_steps() of one row, and the gates of its output.
  // Nothing is written to `mixed` itself. Returns false if the gates have no gain, for heads that
  // can_prepare() does not support, for matrices that are not float32, and if the channels and
  // gates are not made by products of the program.
  //
  // Programs with delta nets, with gated attention, with heads of 256 values or with partly rotated
  // heads support only codes of 2 to 4 bits with scales for 128 columns.
  bool step_delta(const DeltaStep& step);

  // Adds route() of one row with the product of the router, prepare() and multiply_experts() of
  // gate and up, then of down, and sum_experts(); the sum is added to the residual stream. Returns
  // false for what multiply() refuses, a gate other than silu, biases, uncoded matrices, trellis
  // codes, a shared expert with other codes than the routed ones, widths that are not multiples of
  // 16, more than 63 chosen experts, and experts so small that the k-tiles of a warp would belong
  // to more than three of them at a time.
  bool experts(const ExpertStep& step);

  bool empty() const { return count_ == 0; }
  // Completes the program; nothing can be added afterwards. Returns false if the device has too
  // little shared memory or the distance between two products is too long.
  bool finish();
  // Computes the results of the single launches, except for the order of float additions. With
  // fewer rows than the program has, what the others have in memory is read and overwritten.
  void launch(Stream stream, int rows = 1) const;

 private:
  // Describes the row that all attention phases of the program work on.
  struct Row {
    RowPlaces places;
    PageTable table;
    const int32_t* kept = nullptr;
  };

  struct Signs {
    uint32_t seed;
    int cols;
    Buffer bits;
  };

  // Lists the arrays that a phase reads and writes, in the order of its tags.
  struct Arrays {
    std::array<ExchangeArray*, kPhaseArrays> in{}, out{};
  };

  struct Planned;

  // Says how a reader finishes an array of heads: it divides each head by its norm, computed from
  // these squares.
  struct Heads {
    ExchangeArray* squares;
    int shift;  // It is log2 of the values per head.
    float eps;
  };

  // Holds places for the outputs of the experts' gate and up. Layers with as many values share
  // them.
  struct GatePlace {
    int64_t count;
    Buffer gate, up;
  };

  // Holds the codes of all products, as far as they select the kernel.
  struct Codes {
    std::set<std::pair<DecoderKind, int>> kinds;  // They are decoder and flush.
    bool apart = false;                           // If true, codes differ within a phase.
    bool experts = false;                         // If true, some phase chooses experts.
    // If true, it has other mixers (persistent/stream.cuh).
    bool mixers = false;
    int coded = 0;  // Heads of a coded cache have this many values.
    int rows = 1;
    bool deep = true;  // It says whether the rings of several rows are deep.

    bool several() const { return kinds.size() > 1 || apart; }
    bool wide() const;
    bool trellis() const;
    bool known() const;  // It returns whether a kernel exists for them.
    ProgramMemory memory() const;
    PersistentKernel kernel() const;
    PersistentKernel coded_kernel() const;
    PersistentKernel rows_kernel() const;
    template <int Dim>
    PersistentKernel coded_kernel_of() const;
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
  // These are in program_mixers.cpp.
  bool describe_heads(const RopeCall& rope, const AttentionRows& call, int kv_heads, int dim,
                      const AttentionScratch& scratch, Planned& plan);
  bool finish_attention(const Row& row, int64_t bytes, Planned& plan);
  bool describe_decays(const DeltaStep& step, Planned& plan);
  bool read_heads(Planned& plan);
  // These are in program_experts.cpp.
  ExchangeArray* add_router(const ExpertStep& step);
  bool add_gates(const ExpertStep& step, const GatePlace& place, ExchangeArray& logits);
  bool add_downs(const ExpertStep& step, const GatePlace& place);
  static bool describe_shared(const Matmul& first, const Matmul& shared, int set,
                              ExpertPhase& experts);
  const GatePlace& gate_place(int64_t count);
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
  std::vector<ExpertPhase> experts_;                     // There is one per phase.
  std::vector<Arrays> links_;                            // There is one per phase.
  std::map<const void*, ExchangeArray> arrays_;          // The key is the address that callers use.
  std::vector<std::unique_ptr<ExchangeArray>> packets_;  // They are for shared inputs.
  std::vector<Signs> signs_;
  // These are of routers; the key is the number of logits.
  std::map<int64_t, ExchangeArray> logits_;
  // These are of heads; the key is the number of squares.
  std::map<int64_t, ExchangeArray> squares_;
  std::map<const ExchangeArray*, Heads> heads_;
  std::vector<std::unique_ptr<GatePlace>> gate_places_;
  PhaseOrder order_;
  int count_ = 0, blocks_ = 0;
  Codes codes_;
  // This many blocks make inputs together.
  int pair_ = 1;
  int most_own_k_tiles_ = 0;  // It is for an input that blocks make.
  // If true, some such input has only one.
  bool one_k_tile_ = false;
  int64_t own_bytes_ = 0, input_bytes_ = 0, sum_bytes_ = 0;  // ProgramArgs explains them.
  // It is the most k-tiles of a warp in a phase.
  int longest_run_ = 0;
  int most_runs_ = 1;         // It is the most runs of one expert matrix, per warp and phase.
  int64_t choice_bytes_ = 0;  // The choice takes this much shared memory, in programs with experts.
  int first_choice_ = 0;      // ProgramArgs explains it.
  Row row_;
  std::vector<uint16_t> shares_;  // ProgramArgs explains it.
  Buffer device_phases_, device_experts_, device_shares_, left_;
};

}  // namespace walsh::cuda
