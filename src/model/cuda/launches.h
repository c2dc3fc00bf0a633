// Runs the steps of a model on a GPU one by one. Every step is one launch or a few.
#pragma once

#include <cstdint>
#include <span>

#include "model/cuda/batch.h"
#include "model/cuda/input_meter.h"
#include "model/cuda/operands.h"

namespace walsh {

class CudaLaunches {
 public:
  // All arguments outlive this object.
  CudaLaunches(const CudaOperands& operands, CudaMemory& memory, const CudaBatch& batch,
               cuda::Stream stream);

  void embed();
  // Runs the steps of the layers [begin, end), each over the rows that it needs.
  void run(int64_t begin, int64_t end);
  // Computes the logits of `rows` of the wanted rows, from number `first` on.
  void logits(int64_t first, int64_t rows);
  // Applies the model's cap, if it has one, to logits that a product has written.
  void cap(int64_t rows);
  // Reports the inputs of the layers to a meter from now on. The meter outlives this object.
  void meter(CudaInputMeter* meter) { meter_ = meter; }

 private:
  // These run the steps over the rows of the batch from skip_ on.
  void perform(const step::Embed& s);
  void perform(const step::Product& s);
  void perform(const step::PrepareHeads& s);
  void perform(const step::MultiplyHeads& s);
  void perform(const step::Attend& s);
  void perform(const step::Convolve& s);
  void perform(const step::DeltaRule& s);
  void perform(const step::GateHeads& s);
  void perform(const step::Route& s);
  void perform(const step::Experts& s);
  void perform(const step::AddExperts& s);
  void perform(const step::CenterRows& s);
  void perform(const step::NormRows& s);
  void perform(const step::AddBranch& s);
  void perform(const step::Logits& s);

  void run_layer(const LayerSteps& layer);
  // Returns the step `ahead` places after the current one if it is of this kind, otherwise null.
  template <typename Kind>
  const Kind* following(size_t ahead) const {
    return at_ + ahead < steps_.size() ? std::get_if<Kind>(&steps_[at_ + ahead].op) : nullptr;
  }
  const float* wanted_rows(const Operand& from, int64_t first, int64_t rows);
  void keep_latents(const step::PrepareHeads& s);
  void norm_all(const Norm& norm, float* x, int64_t width);
  void attend_pages(const step::Attend& s);
  bool is_expanded(const RowGroup& group) const;
  void multiply_heads(const step::MultiplyHeads& s, int64_t first, int64_t count);
  void attend_latents(const step::Attend& s);
  void attend_expanded(const step::Attend& s, int64_t begin, int64_t end, int64_t longest);
  int64_t rows() const { return batch_.rows() - skip_; }

  const CudaOperands& operands_;
  const Model& model_;
  CudaMemory& memory_;
  const CudaBatch& batch_;
  cuda::Stream stream_;
  CudaInputMeter* meter_ = nullptr;

  // Holds the steps of the layer that is being computed, and the place of the current one.
  std::span<const Step> steps_;
  size_t at_ = 0;
  int layer_ = -1;
  int64_t skip_ = 0;
  int64_t first_logit_ = 0, logit_count_ = 0;  // They are the arguments of the current logits().
  // Earlier steps of a layer leave this to later ones: the gates that the next product applies to
  // the mixer's results while it prepares its input; whether the launch of the router's product has
  // chosen experts and prepared their inputs; and the steps of a delta net and of experts.
  cuda::HeadGates gates_;
  bool prepared_in_front_ = false, routed_in_front_ = false;
  const step::Convolve* convolved_ = nullptr;
  const step::Experts* experts_ = nullptr;
};

}  // namespace walsh
