// Runs layers with experts on the CPU: rows are grouped by expert, so that each of the chosen
// experts is read once for all of its rows, and the others are not read.
#include <algorithm>
#include <cmath>

#include "model/cpu/executor.h"

namespace walsh {
namespace {

// Up to this many rows are gathered by one thread, because waking the others would take longer.
constexpr int64_t kFewRows = 32;

}  // namespace

// Gives each expert rows of its own, with room for all rows of a batch. Memory that no row reaches
// is never touched, so the system does not provide it.
void CpuExecutor::allocate_experts() {
  const LayerWidths w = widest(model_.config);
  if (w.experts == 0) return;
  const int64_t slots = max_rows_ * w.chosen;
  experts_.gate = RowBuffer(slots, w.expert);
  experts_.up = RowBuffer(slots, w.expert);
  experts_.out = RowBuffer(slots, model_.config.hidden);
  experts_.chosen.resize(static_cast<size_t>(slots));
  experts_.weights.resize(static_cast<size_t>(slots));
  experts_.inputs.resize(static_cast<size_t>(w.experts));
  for (std::vector<Workspace>& inputs : experts_.inputs) {
    inputs.resize(workspaces_.size());
    for (const int buffer : expert_buffers(model_)) {
      const auto index = static_cast<size_t>(buffer);
      inputs[index] = Workspace(model_.steps.buffers[index], max_rows_);
    }
  }
}

// Returns the numbers of the buffers that hold the inputs of experts' matrices.
std::set<int> CpuExecutor::expert_buffers(const Model& model) {
  std::set<int> buffers;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerDesc& desc = model.config.layers[i];
    for (size_t m = 0; m < desc.matrices.size(); ++m) {
      if (desc.matrices[m].expert < 0) continue;
      const Linear& linear = model.layers[i].matrices[m];
      const Input& input = model.input(static_cast<int>(i), desc.matrices[m].input);
      for (int pass = 0; pass < linear.format->passes || pass == 0; ++pass)
        buffers.insert(input.forms[static_cast<size_t>(linear.input[pass])].buffer);
    }
  }
  return buffers;
}

uint64_t CpuExecutor::expert_bytes(const Model& model, int64_t rows) {
  const LayerWidths w = widest(model.config);
  if (w.experts == 0) return 0;
  const int64_t slots = rows * w.chosen;
  uint64_t sum =
      2 * RowBuffer::bytes(slots, w.expert) + RowBuffer::bytes(slots, model.config.hidden);
  for (const int buffer : expert_buffers(model))
    sum += static_cast<uint64_t>(w.experts) *
           Workspace::bytes(model.steps.buffers[static_cast<size_t>(buffer)], rows);
  return sum;
}

void CpuExecutor::perform(const step::Route& s, int layer, int64_t skip) {
  const ExpertsDesc& e = s.experts;
  const int64_t m = m_ - skip;
  const std::span chosen(experts_.chosen.data(), static_cast<size_t>(m * e.chosen));
  for (int64_t row = 0; row < m; ++row) {
    choose_experts(e, rows(s.logits.rows).row(row), model_.vector(layer, s.bias),
                   chosen.subspan(static_cast<size_t>(row * e.chosen)), experts_.scores);
  }
  experts_.slots.group(chosen, e.chosen, e.count);
  if (s.factors >= 0) {
    const float* factors = vector(layer, s.factors);
    for (ChosenExpert& choice : chosen)
      choice.weight *= factors[choice.expert];
  }
  for (size_t i = 0; i < chosen.size(); ++i)
    experts_.weights[static_cast<size_t>(experts_.slots.slot[i])] = chosen[i].weight;
}

// Multiplies gate and up of a slot by its weight, which equals multiplying the input of the expert.
void CpuExecutor::weigh_slot(int64_t slot, int64_t width) {
  const float weight = experts_.weights[static_cast<size_t>(slot)];
  for (float* x : {experts_.gate.row(slot), experts_.up.row(slot)})
    for (int64_t i = 0; i < width; ++i)
      x[i] *= weight;
}

// Adds the product of every chosen expert with its rows to the products to compute. `matrix` names
// which of its matrices.
void CpuExecutor::add_products(const step::Experts& s, int layer,
                               int (ExpertsDesc::*matrix)(int64_t) const, RowBuffer& to,
                               std::vector<Matmul>& products) {
  const bool is_last = matrix == &ExpertsDesc::down;
  const Input& input = model_.input(layer, is_last ? s.gated_input : s.input);
  for (int64_t e = 0; e < s.experts.count; ++e) {
    const int64_t count = experts_.slots.count(e);
    if (count == 0) continue;
    const int64_t first = experts_.slots.first[static_cast<size_t>(e)];
    products.push_back({&model_.matrix(layer, (s.experts.*matrix)(e)), &input, to.row(first),
                        to.stride, count, &experts_.inputs[static_cast<size_t>(e)]});
  }
}

// Copies the rows of the input that was prepared last so that those of one expert lie together.
void CpuExecutor::gather_expert_rows(const Input& input) {
  const auto gather = [&](int64_t slot) {
    const auto at = static_cast<size_t>(slot);
    const auto e = static_cast<size_t>(experts_.slots.expert[at]);
    for (const PreparedInput& form : input.forms) {
      const auto buffer = static_cast<size_t>(form.buffer);
      Workspace& to = experts_.inputs[e][buffer];
      if (!to.empty())
        to.copy(slot - experts_.slots.first[e], workspaces_[buffer], experts_.slots.row[at]);
    }
  };
  const auto slots = static_cast<int64_t>(experts_.slots.row.size());
  if (slots <= kFewRows) {
    for (int64_t slot = 0; slot < slots; ++slot)
      gather(slot);
  } else {
    for_rows(slots, [&](int64_t slot, float*) { gather(slot); });
  }
}

void CpuExecutor::perform(const step::Experts& s, int layer, int64_t skip) {
  const ExpertsDesc& e = s.experts;
  const Input& input = model_.input(layer, s.input);
  if (s.makes_input) {
    const RowBuffer& from = rows(s.from.rows);
    prepare(source(layer, s.input), rows(s.from.rows).row(skip), from.stride, m_ - skip);
  }
  gather_expert_rows(input);
  tell_experts(input);
  std::vector<Matmul> products;
  if (e.gated) add_products(s, layer, &ExpertsDesc::gate, experts_.gate, products);
  add_products(s, layer, &ExpertsDesc::up, experts_.up, products);
  multiply(products);
  const Source of_down = source(layer, s.gated_input);
  for_rows(static_cast<int64_t>(experts_.slots.row.size()), [&](int64_t slot, float* scratch) {
    float* gate = e.gated ? experts_.gate.row(slot) : experts_.up.row(slot);
    if (e.routing.of_input) weigh_slot(slot, e.width);
    gate_row(s.gate, gate, experts_.up.row(slot), e.width);
    const auto own = static_cast<size_t>(experts_.slots.expert[static_cast<size_t>(slot)]);
    prepare_row(of_down, gate, slot - experts_.slots.first[own], scratch, experts_.inputs[own]);
  });
  tell_experts(of_down.input);
  products.clear();
  add_products(s, layer, &ExpertsDesc::down, experts_.out, products);
  multiply(products);
}

void CpuExecutor::tell_experts(const Input& input) const {
  if (!observer_) return;
  const ExpertSlots& slots = experts_.slots;
  for (const PreparedInput& form : input.forms) {
    if (form.planes > 0 || form.transform.rotator != nullptr) continue;
    for (size_t e = 0; e + 1 < slots.first.size(); ++e) {
      const Workspace& from = experts_.inputs[e][static_cast<size_t>(form.buffer)];
      const int64_t first = slots.first[e], count = slots.first[e + 1] - first;
      if (count == 0) continue;
      observer_(input, {from.rows.data(), from.stride, count, static_cast<int>(e),
                        slots.row.data() + first});
    }
    return;
  }
}

void CpuExecutor::perform(const step::AddExperts& s, int, int64_t skip) {
  const ExpertsDesc& e = s.experts;
  const int64_t width = s.branch.width;
  for_rows(m_ - skip, [&](int64_t row, float*) {
    float* sum = rows(s.branch.rows).row(row);
    if (!s.shared) {
      std::fill_n(sum, width, 0.0f);
    } else if (s.share.present()) {
      const float share = 1 / (1 + std::exp(-*rows(s.share.rows).row(row)));
      for (int64_t i = 0; i < width; ++i)
        sum[i] *= share;
    }
    for (int64_t k = 0; k < e.chosen; ++k) {
      const auto choice = static_cast<size_t>(row * e.chosen + k);
      const float weight = e.routing.of_input ? 1 : experts_.chosen[choice].weight;
      const float* out = experts_.out.row(experts_.slots.slot[choice]);
      for (int64_t i = 0; i < width; ++i)
        sum[i] += weight * out[i];
    }
  });
  if (s.to.present()) add_rows(s.branch, s.scale, s.to, skip);
}

}  // namespace walsh
