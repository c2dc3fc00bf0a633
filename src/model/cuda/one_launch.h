// Makes one launch of the steps of all layers for one token, or for one each of a few sequences,
// and one of the head (kernels/cuda/persistent), where the device and the formats of the model
// allow it.
#pragma once

#include "kernels/cuda/persistent/program.h"
#include "model/cuda/operands.h"

namespace walsh {

class OneLaunch {
 public:
  // Both arguments outlive it. `rows` is as in cuda::PersistentProgram.
  OneLaunch(const CudaOperands& operands, CudaLinear& linear, int rows)
      : operands_(operands), linear_(linear), rows_(rows) {}

  // These make the programs; they are empty where there can be none.
  cuda::PersistentProgram layers();
  cuda::PersistentProgram head();

 private:
  // Adds what a step computes to the program, or keeps it for the phase that a later step becomes.
  // Returns false if a program cannot do the step.
  bool add(const step::Embed&) { return false; }
  bool add(const step::Product& s);
  bool add(const step::PrepareHeads& s);
  bool add(const step::MultiplyHeads&) { return false; }
  bool add(const step::Attend& s);
  bool add(const step::Convolve& s);
  bool add(const step::DeltaRule& s);
  bool add(const step::GateHeads& s);
  bool add(const step::Route& s);
  bool add(const step::Experts& s);
  bool add(const step::AddExperts& s);
  bool add(const step::CenterRows&) { return false; }
  bool add(const step::NormRows&) { return false; }
  bool add(const step::AddBranch&) { return false; }
  bool add(const step::Logits& s);
  bool multiply(const Input& input, const cuda::InputSource& source,
                std::span<const CudaMatmul> items) {
    return linear_.add_to(program_, input, source, items);
  }
  bool add_step(const Step& step) {
    layer_ = step.layer;
    return std::visit([this](const auto& s) { return add(s); }, step.op);
  }

  // These steps wait for the one that becomes their phase: attention; the delta rule with its
  // decays and strengths, which the phase multiplies itself; experts with their router and the
  // shared one.
  struct Waiting {
    const step::PrepareHeads* heads = nullptr;
    const step::Convolve* convolve = nullptr;
    const step::DeltaRule* rule = nullptr;
    cuda::InputSource decay_source;
    const Linear *decay = nullptr, *strength = nullptr;
    const step::Product *router = nullptr, *shared_down = nullptr;
    const step::Route* route = nullptr;
    const step::Experts* experts = nullptr;
  };

  const CudaOperands& operands_;
  CudaLinear& linear_;
  const int rows_;
  cuda::PersistentProgram program_;
  Waiting waiting_;
  int layer_ = -1;
};

}  // namespace walsh
