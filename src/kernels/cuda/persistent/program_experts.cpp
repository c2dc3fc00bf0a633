// Adds layers with experts as phases, which are the product of the router, gate and up, and down.
#include <algorithm>
#include <array>

#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/persistent/planned_phase.h"

namespace walsh::cuda {
namespace {

using detail::PassMatmul;

constexpr int kMostExperts = 32 * kMostStepLaneExperts;

bool is_one_pass(const Matmul& product) {
  return product.pass[0] != nullptr && product.pass[1] == nullptr && product.bias == nullptr;
}

// Returns whether a step can multiply these matrices, within all limits of expert products.
bool can_multiply(const ExpertStep::Part& part, const ExpertStep& step) {
  if (!is_one_pass(part.gate) || !is_one_pass(part.up) || !is_one_pass(part.down)) return false;
  const Matrix &gate = *part.gate.pass[0], &up = *part.up.pass[0], &down = *part.down.pass[0];
  InputSource source;
  source.width = source.ldx = part.width;
  return part.width % kTileRows == 0 && gate.rows == part.width && up.rows == part.width &&
         down.rows == step.source.width && detail::can_make(source, part.down_form) &&
         part.down_form.out == part.down.input[0] && part.gate.input[0] == part.up.input[0];
}

bool can_choose(const ExpertStep& step) {
  const RouteRule& rule = step.rule;
  const int64_t width = step.source.width;
  if (step.function != GateFunction::silu || step.source.up != nullptr) return false;
  if (!is_known(rule) || rule.experts > kMostExperts || rule.chosen >= kMostSlots) return false;
  if (!detail::are_float_rows(*step.router, rule.experts, width) ||
      (step.share != nullptr && !detail::are_float_rows(*step.share, 1, width)))
    return false;
  return input_view(step.source).vectors && can_multiply(step.expert, step) &&
         (step.shared.width == 0 || can_multiply(step.shared, step));
}

// Returns whether the k-tiles of both have the same layout, so that one product may contain some of
// each.
bool same_k_tiles(const Matrix& a, const Matrix& b) {
  return a.code == b.code && a.group == b.group && a.offset_group == b.offset_group;
}

ExpertPhase::Arrays arrays_of(const Matrix& m) {
  return {m.codes.as<uint4>(), m.scales.as<std::byte>(), m.offsets.as<std::byte>()};
}

// Returns how many k-tiles one expert's matrix has; 0 if there is none.
int k_tiles_of(const Matrix* m) {
  return m == nullptr ? 0 : static_cast<int>(m->cols / kKTileColumns);
}
int tiles_of(const Matrix* m) {
  return m == nullptr ? 0 : static_cast<int>(m->tiles());
}

}  // namespace

bool PersistentProgram::experts(const ExpertStep& step) {
  codes_.experts = true;
  if (codes_.rows > 1 || !can_choose(step)) return false;
  choice_bytes_ = std::max<int64_t>(choice_bytes_, Choice::bytes(step.rule));
  const GatePlace& place = gate_place(step.rule.chosen * step.expert.width + step.shared.width);
  ExchangeArray* logits = add_router(step);
  return logits != nullptr && add_gates(step, place, *logits) && add_downs(step, place);
}

// Returns the places for gate and up, which layers share if their experts have the same number of
// values.
const PersistentProgram::GatePlace& PersistentProgram::gate_place(int64_t count) {
  for (const auto& place : gate_places_)
    if (place->count == count) return *place;
  const auto bytes = static_cast<uint64_t>(count) * sizeof(float);
  gate_places_.push_back(
      std::make_unique<GatePlace>(GatePlace{count, Buffer(bytes), Buffer(bytes)}));
  return *gate_places_.back();
}

// Adds the product of the router. Returns null if a block might still read the logits of another
// layer.
ExchangeArray* PersistentProgram::add_router(const ExpertStep& step) {
  Planned plan{ProgramPhase(RouterPhase()), {}, {}};
  RouterPhase& router = plan.phase.router;
  ExchangeArray* const x = array(step.source.x);
  if (x->written >= 0 && x->count != step.source.width) return nullptr;
  router.x = x->written >= 0 ? x->exchange.as<float>() : step.source.x;
  router.gain = step.source.gain;
  router.eps = step.source.eps;
  router.weights = step.router->data.as<float>();
  router.share = step.share == nullptr ? nullptr : step.share->data.as<float>();
  router.experts = step.rule.experts;
  router.rows = router.experts + (step.share == nullptr ? 0 : 1);
  router.width = static_cast<int>(step.source.width);
  ExchangeArray& logits = logits_[router.rows];
  if (!detail::make_exchange(logits, router.rows)) return nullptr;
  router.exchange = logits.exchange.as<float>();
  plan.arrays.in[0] = x;
  plan.arrays.out[0] = &logits;
  return add_phase(plan, PhaseOrder::Work::part) ? &logits : nullptr;
}

// Describes the shared expert's matrix of a set. Returns false if a product cannot have both kinds.
bool PersistentProgram::describe_shared(const Matmul& first, const Matmul& shared, int set,
                                        ExpertPhase& experts) {
  const Matrix& m = *shared.pass[0];
  experts.shared[set] = arrays_of(m);
  return same_k_tiles(*first.pass[0], m) && first.input[0]->group == shared.input[0]->group;
}

// Adds gate and up as two sets of tiles. In each set the chosen experts follow one another.
bool PersistentProgram::add_gates(const ExpertStep& step, const GatePlace& place,
                                  ExchangeArray& logits) {
  const ExpertStep::Part &each = step.expert, &shared = step.shared;
  const auto form = std::find_if(step.forms.begin(), step.forms.end(),
                                 [&](const InputForm& f) { return f.out == each.gate.input[0]; });
  if (form == step.forms.end() || !detail::can_make(step.source, *form)) return false;
  std::array<Matmul, 2> products{each.gate, each.up};
  products[0].y = place.gate.as<float>();
  products[1].y = place.up.as<float>();
  const PassMatmul group[] = {{each.gate.pass[0], each.gate.input[0], &products[0], 0},
                              {each.up.pass[0], each.up.input[0], &products[1], 0}};
  Planned plan;
  if (!describe_product(step.source, *form, group, plan)) return false;
  ExpertPhase& experts = plan.experts;
  GemvArgs& args = plan.phase.gemv;
  const Matrix* const of_shared = shared.width > 0 ? shared.gate.pass[0] : nullptr;
  const int tiles = step.rule.chosen * tiles_of(each.gate.pass[0]) + tiles_of(of_shared);
  experts.chosen = step.rule.chosen;
  experts.stride = step.stride;
  experts.per_slot = tiles_of(each.gate.pass[0]) * args.k_tiles;
  experts.per_shared = tiles_of(of_shared) * args.k_tiles;
  for (int i = 0; i < 2; ++i) {
    args.set[i].rows = static_cast<int>(place.count);
    args.set[i].first_tile = i * tiles;
    if (shared.width == 0) continue;
    const Matmul& product = i == 0 ? shared.gate : shared.up;
    if (product.input[0] != each.gate.input[0] ||
        !describe_shared(products[static_cast<size_t>(i)], product, i, experts))
      return false;
  }
  args.tiles = 2 * tiles;
  experts.rule = step.rule;
  experts.bias = step.bias;
  experts.logits = logits.exchange.as<float>();
  experts.gates_shared = step.share != nullptr;
  if (!read_rows(step.source.width, plan) || !place_inputs(plan)) return false;
  plan.arrays.in[kLogitsArray] = &logits;
  return finish_product(plan);
}

// Adds down, a row of which is as long as the rows of all chosen experts together.
bool PersistentProgram::add_downs(const ExpertStep& step, const GatePlace& place) {
  const ExpertStep::Part &each = step.expert, &shared = step.shared;
  const size_t chooses = phases_.size() - 1;
  InputSource source;
  source.x = place.gate.as<float>();
  source.up = place.up.as<float>();
  source.width = source.ldx = each.width;
  Matmul down = each.down;
  down.y = step.stream;
  down.add = true;
  const PassMatmul group[] = {{down.pass[0], down.input[0], &down, 0}};
  Planned plan;
  if (!describe_product(source, each.down_form, group, plan)) return false;
  ExpertPhase& experts = plan.experts;
  GemvArgs& args = plan.phase.gemv;
  experts.chosen = step.rule.chosen;
  experts.stride = step.stride;
  experts.by_row = true;
  experts.per_slot = args.k_tiles;
  experts.width = static_cast<int>(each.width);
  if (shared.width > 0) {
    source.width = source.ldx = shared.width;
    experts.per_shared = k_tiles_of(shared.down.pass[0]);
    experts.shared_width = static_cast<int>(shared.width);
    experts.shared_form = form_view(source, shared.down_form, 1);
    experts.shared_segment = detail::segment_of(experts.shared_form);
    experts.shared_signs = signs_of(experts.shared_form);
    if (!describe_shared(down, shared.down, 0, experts)) return false;
  }
  args.k_tiles = experts.chosen * experts.per_slot + experts.per_shared;
  if (!read_rows(place.count, plan) || !place_inputs(plan) || !finish_product(plan)) return false;
  experts_[chooses].last = static_cast<int>(phases_.size()) - 1;
  return true;
}

// Determines up to which phase weights are known without a choice that is still to be made.
void PersistentProgram::follow_choices() {
  int next = static_cast<int>(phases_.size());
  for (size_t i = phases_.size(); i-- > 0;) {
    if (experts_[i].last == 0) continue;
    experts_[i].next = next;
    next = static_cast<int>(i);
  }
  first_choice_ = next;
}

// Returns how many pieces of weights a warp has that has `count` k-tiles of a phase.
int PersistentProgram::runs_of(const ExpertPhase& experts, int count) {
  return experts.chosen == 0 ? 1 : most_expert_runs(experts, count);
}

}  // namespace walsh::cuda
