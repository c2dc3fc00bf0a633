// Lists what steps read and write.
#include <algorithm>

#include "model/steps.h"

namespace walsh {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

std::vector<Operand> operands_of(const Step& step) {
  const Overloaded each{
      [](const step::Embed& s) { return std::vector{s.to}; },
      [](const step::Product& s) {
        std::vector all{s.from, s.up};
        for (const auto& output : s.outputs)
          all.push_back(output.to);
        return all;
      },
      [](const step::PrepareHeads& s) {
        return std::vector{s.query, s.key, s.value, s.to, s.gates, s.shared_key, s.latent};
      },
      [](const step::MultiplyHeads& s) {
        return std::vector{s.from, s.to};
      },
      [](const step::Attend& s) {
        return std::vector{s.query, s.to};
      },
      [](const step::Convolve& s) {
        return std::vector{s.channels, s.decay, s.strength, s.before, s.after, s.to};
      },
      [](const step::DeltaRule& s) {
        return std::vector{s.channels, s.decay, s.strength, s.to};
      },
      [](const step::GateHeads& s) {
        return std::vector{s.x, s.gate};
      },
      [](const step::Route& s) { return std::vector{s.logits}; },
      [](const step::Experts& s) { return std::vector{s.from}; },
      [](const step::AddExperts& s) {
        return std::vector{s.share, s.branch, s.to};
      },
      [](const step::CenterRows& s) { return std::vector{s.x}; },
      [](const step::NormRows& s) { return std::vector{s.x}; },
      [](const step::AddBranch& s) {
        return std::vector{s.branch, s.to};
      },
      [](const step::Logits& s) {
        return std::vector{s.from, s.to};
      }};
  std::vector<Operand> all = std::visit(each, step.op);
  std::erase_if(all, [](const Operand& operand) { return !operand.present(); });
  return all;
}

std::vector<int> matrices_of(const Step& step) {
  const Overloaded each{[](const step::Product& s) {
                          std::vector<int> all;
                          for (const auto& output : s.outputs)
                            all.push_back(output.matrix);
                          return all;
                        },
                        [](const step::Experts& s) {
                          std::vector<int> all;
                          for (int i = 0; i < s.experts.each() * static_cast<int>(s.experts.count);
                               ++i)
                            all.push_back(s.experts.first + i);
                          return all;
                        },
                        [](const step::MultiplyHeads& s) { return std::vector{s.matrix}; },
                        [](const step::Logits&) { return std::vector{0}; },
                        [](const auto&) { return std::vector<int>(); }};
  return std::visit(each, step.op);
}

std::array<int64_t, kRowKinds> ModelSteps::strides() const {
  std::array<int64_t, kRowKinds> most = {};
  const auto see = [&](const Step& step) {
    for (const Operand& operand : operands_of(step)) {
      int64_t& own = most[static_cast<size_t>(operand.rows)];
      own = std::max(own, operand.stride);
    }
  };
  std::for_each(embed.begin(), embed.end(), see);
  for (const LayerSteps& layer : layers)
    std::for_each(layer.steps.begin(), layer.steps.end(), see);
  std::for_each(head.steps.begin(), head.steps.end(), see);
  return most;
}

bool ModelSteps::uses(Rows rows) const {
  return strides()[static_cast<size_t>(rows)] > 0;
}

}  // namespace walsh
