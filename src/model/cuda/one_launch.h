// Makes one launch of all layers' steps for one token each of one or a few sequences, and one
// launch of the head (kernels/cuda/persistent), where the device and the model's formats allow it.
#pragma once

#include "kernels/cuda/persistent/program.h"
#include "model/cuda/operands.h"

namespace walsh {

class OneLaunch {
 public:
  // Both arguments outlive this object. `rows` has the meaning that it has in
  // cuda::PersistentProgram.
  OneLaunch(const CudaOperands& operands, CudaLinear& linear, int rows)
      : operands_(operands), linear_(linear), rows_(rows) {}

  // These return the programs, empty where there can be none.
  cuda::PersistentProgram layers();
  cuda::PersistentProgram head();

 private:
  // These add a step to the program, or keep it for the phase that a later step becomes. They
  // return false if a program cannot do the step.
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

  // These steps wait for the later step that becomes their phase. The phases of the delta rule and
  // of experts multiply some matrices themselves (decays and strengths; router and shared expert),
  // so those products wait, too.
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
