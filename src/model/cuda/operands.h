// Finds the operands of steps on a GPU: where rows, vectors and caches lie, and the arguments of
// kernels that follow from a step. Single launches and phases of a program both use it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/rows/gated_heads.h"
#include "kernels/cuda/rows/rows.h"
#include "model/cuda/executor_memory.h"
#include "model/model.h"

namespace walsh {

class CudaOperands {
 public:
  // Both arguments outlive this object.
  CudaOperands(const Model& model, const CudaMemory& memory);

  const Model& model() const { return model_; }
  const CudaMemory& memory() const { return memory_; }

  // Returns the table of the embedding or, with `of_layers`, that of the embeddings of layers. The
  // model must have it.
  const cuda::StoredTable& table(bool of_layers) const {
    return of_layers ? layer_embedding_ : embedding_;
  }
  // Returns row `index` of an operand.
  float* row(const Operand& operand, int64_t index = 0) const;
  const float* vector(int layer, int index) const { return memory_.vectors.at(layer, index); }
  // Returns array number `array` of CudaMemory::staged.
  int32_t* staged(int64_t array) const;
  cuda::RowPlaces places() const { return {staged(1), staged(2)}; }

  // Returns the rows from `first` on as a source of inputs, with the gain of a norm of the layer if
  // there is one.
  cuda::InputSource source(const Operand& from, const Norm& norm, int layer, int64_t first) const;
  // These return what a product reads and writes for the rows of a batch from `skip` on. The
  // residual stream and mixers' results keep their places; what a block computes besides begins at
  // the first row.
  cuda::InputSource source(const step::Product& s, int layer, int64_t skip) const;
  std::vector<CudaMatmul> products(const step::Product& s, int layer, int64_t skip) const;

  // Returns whether queries and keys have a norm that rope_call() does not apply.
  static bool has_norm_in_front(const step::PrepareHeads& s) {
    return s.norms_all_heads() || (s.query_norm.present() && s.unit().present());
  }
  // Returns the call for all m rows. Heads of unit length are normed before the rotation. The
  // rotation makes them longer by the magnitude of the rope, so their gains are uploaded smaller by
  // it.
  cuda::RopeCall rope_call(const step::PrepareHeads& s, int layer, int64_t m) const;
  cuda::AttentionRows attention_rows(const step::Attend& s, int layer, int64_t m) const;
  // Describes rows [first, first + rows), over keys and values in fp16 pages.
  cuda::AttentionCall attention_call(const step::Attend& s, int layer, int64_t first,
                                     int64_t rows) const;
  // Returns the gates of rows from `skip` on. Gates of delta nets are rows of their own; those of
  // attention stand after the queries of their head.
  cuda::HeadGates head_gates(const step::GateHeads& s, int layer, int64_t skip) const;
  CudaDeltaNet::Rows delta_rows(const step::Convolve& s, const Operand& mixed, int64_t m) const;
  // Returns the rows and weights of a short convolution between gates.
  cuda::GatedConvolveCall gated_convolve_call(const step::Convolve& s, int layer, int64_t m) const;
  ExpertLayer experts(const step::Experts& s, int layer) const {
    return {model_, s, layer, expert_strides_[static_cast<size_t>(layer)]};
  }
  // Returns the factor by which a rope lengthens what it turns; 1 without a rope.
  float magnitude(int rope) const;

 private:
  const Model& model_;
  const CudaMemory& memory_;
  std::vector<int64_t> expert_strides_;  // Each layer has a stride in bytes, 0 without experts.
  cuda::StoredTable embedding_, layer_embedding_;
};

}  // namespace walsh
