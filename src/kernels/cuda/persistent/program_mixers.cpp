// Adds mixers as phases, which are attention and steps of delta nets.
#include <algorithm>
#include <bit>
#include <iterator>

#include "kernels/cuda/attention/args.h"
#include "kernels/cuda/persistent/planned_phase.h"

namespace walsh::cuda {

using detail::make_exchange;

// Sets what attention does whatever the cache is. Returns false for heads and options that no phase
// supports.
bool PersistentProgram::describe_heads(const RopeCall& rope, const AttentionRows& call,
                                       int kv_heads, int dim, const AttentionScratch& scratch,
                                       Planned& plan) {
  AttentionPhase& a = plan.phase.attention;
  Arrays& arrays = plan.arrays;
  if (call.m != codes_.rows || (dim != 64 && dim != 128 && dim != 256)) return false;
  a.rule = detail::row_args(call, kv_heads, dim).rule;  // It throws for calls that no kernel takes.
  if (a.rule.cap.power != 0) return false;
  a.turned = turned_pairs(rope, dim);
  codes_.mixers |= a.gated || dim == 256 || (a.turned != 0 && a.turned != dim / 2);
  a.q_norm = rope.q_norm;
  a.k_norm = rope.k_norm;
  a.cos = rope.cos;
  a.sin = rope.sin;
  a.q_scale = rope.q_scale;
  a.out = call.out;
  a.ldo = call.ldo;
  a.partials = scratch.partials();
  a.arrived = scratch.arrived();
  a.eps = rope.eps;
  a.heads = call.heads;
  a.kv_heads = kv_heads;
  a.head_dim = dim;
  a.group = call.heads / kv_heads;
  a.tiles = detail::head_tiles(call.heads, kv_heads);
  const float* const rows[] = {rope.q, rope.k, rope.v};
  const float** const places[] = {&a.q, &a.k, &a.v};
  for (size_t i = 0; i < 3; ++i) {
    arrays.in[i] = array(rows[i]);
    const bool here = arrays.in[i]->written >= 0;
    const int64_t heads = i > 0 ? a.kv_heads : a.gated ? 2 * a.heads : a.heads;
    if (!here && codes_.rows > 1) return false;
    if (here && arrays.in[i]->count != heads * dim) return false;
    *places[i] = here ? arrays.in[i]->exchange.as<float>() : rows[i];
  }
  return true;
}

// Completes a phase of attention, which needs `bytes` of the room for inputs in shared memory.
bool PersistentProgram::finish_attention(const Row& row, int64_t bytes, Planned& plan) {
  AttentionPhase& a = plan.phase.attention;
  ExchangeArray* out = array(a.out);
  if (!make_exchange(*out, int64_t{a.heads} * a.head_dim, codes_.rows)) return false;
  a.exchange = out->exchange.as<float>();
  plan.arrays.out = {out};
  input_bytes_ = std::max(input_bytes_, bytes);
  row_ = row;
  heads_.erase(out);
  return add_phase(plan, PhaseOrder::Work::part);
}

bool PersistentProgram::attend(const RopeCall& rope, const AttentionCall& call,
                               const AttentionScratch& scratch, bool gated) {
  const KvPool& pool = *call.cache;
  Planned plan{ProgramPhase(AttentionPhase()), {}, {}};
  AttentionPhase& a = plan.phase.attention;
  a.gated = gated;
  a.keys = pool.keys.as<uint16_t>();
  a.values = pool.values.as<uint16_t>();
  return describe_heads(rope, call, pool.kv_heads, pool.head_dim, scratch, plan) &&
         finish_attention({call.rows, call.table}, kAttentionPhaseBytes, plan);
}

bool PersistentProgram::attend_coded(const RopeCall& rope, const AttentionRows& call,
                                     const CodedShape& cache, const CodedPages& keys,
                                     const CodedPages& values, const AttentionScratch& scratch) {
  const auto side = [](const CodedPages& of) {
    return CodedPhase::Side{of.tiles, of.leading, of.groups, of.tile_bytes, of.block, of.factor};
  };
  Planned plan{ProgramPhase(AttentionPhase()), {}, {}};
  AttentionPhase& a = plan.phase.attention;
  CodedPhase& coded = a.coded;
  coded.bits = keys.bits;
  if (keys.bits == 0 || keys.bits != values.bits) return false;
  coded.ring = cache.ring;
  coded.window = cache.window;
  coded.keys = side(keys);
  coded.values = side(values);
  std::copy(std::begin(cache.signs), std::end(cache.signs), coded.signs);
  coded.key_offsets = cache.key_offsets;
  coded.key_levels = keys.byte_levels;
  coded.value_levels = values.levels;
  a.keys = keys.ring;
  a.values = values.ring;
  if (codes_.coded != 0 && codes_.coded != cache.head_dim) return false;
  codes_.coded = cache.head_dim;
  return describe_heads(rope, call, cache.kv_heads, cache.head_dim, scratch, plan) &&
         !codes_.mixers &&
         finish_attention({call.rows, {cache.pages, cache.per_sequence}, cache.kept},
                          kCodedPhaseBytes, plan);
}

// Describes the float32 rows that the blocks of a head multiply themselves.
bool PersistentProgram::describe_decays(const DeltaStep& step, Planned& plan) {
  const InputSource& source = step.source;
  const int64_t heads = step.net.dims.value_heads;
  if (source.up != nullptr || !input_view(source).vectors ||
      !detail::are_float_rows(*step.decay, heads, source.width) ||
      !detail::are_float_rows(*step.strength, heads, source.width))
    return false;
  ExchangeArray* const x = plan.arrays.in[2] = array(source.x);
  if (x->written >= 0 && x->count != source.width) return false;
  DeltaPhase& delta = plan.phase.delta;
  delta.x = x->written >= 0 ? x->exchange.as<float>() : source.x;
  delta.x_gain = source.gain;
  delta.x_eps = source.eps;
  delta.width = static_cast<int>(source.width);
  delta.decay_rows = step.decay->data.as<float>();
  delta.strength_rows = step.strength->data.as<float>();
  return true;
}

bool PersistentProgram::step_delta(const DeltaStep& step) {
  const DeltaDims& d = step.net.dims;
  codes_.mixers = true;
  if (codes_.rows > 1) return false;
  check_delta(d);
  if (step.gates.gain == nullptr || step.gates.dim != d.value_dim || !can_prepare(step.gates))
    return false;
  Planned plan{ProgramPhase(DeltaPhase()), {}, {}};
  DeltaPhase& delta = plan.phase.delta;
  Arrays& arrays = plan.arrays;
  delta.net = step.net;
  delta.gain = step.gates.gain;
  delta.pieces = (d.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  ExchangeArray* const channels = arrays.in[0] = array(step.net.in);
  ExchangeArray* const gates = arrays.in[1] = array(step.gates.gate);
  if (channels->written < 0 || channels->count != d.channels() || gates->written < 0 ||
      gates->count != d.value_width() || !describe_decays(step, plan))
    return false;
  delta.net.in = channels->exchange.as<float>();
  delta.gates = gates->exchange.as<float>();
  ExchangeArray* const mixed = arrays.out[0] = array(step.mixed);
  const int64_t count = int64_t{d.value_heads} * squares_of_head(delta.pieces);
  ExchangeArray* const squares = arrays.out[1] = &squares_[count];
  if (!make_exchange(*mixed, d.value_width()) || !make_exchange(*squares, count)) return false;
  delta.exchange = mixed->exchange.as<float>();
  delta.squares = squares->exchange.as<float>();
  heads_[mixed] = {squares, std::countr_zero(static_cast<unsigned>(d.value_dim)), step.gates.eps};
  input_bytes_ = std::max<int64_t>(input_bytes_, kDeltaPhaseBytes);
  row_.places = step.net.places;
  return add_phase(plan, PhaseOrder::Work::part);
}

// If the heads of an input are still to be divided by their norms, adds their squares to what the
// phase reads.
bool PersistentProgram::read_heads(Planned& plan) {
  Arrays& arrays = plan.arrays;
  const auto heads = heads_.find(arrays.in[0]);
  if (heads == heads_.end()) return true;
  InputView& in = plan.phase.gemv.in;
  if (arrays.in[1] != nullptr || in.gain != nullptr) return false;
  arrays.in[1] = heads->second.squares;
  in.up = heads->second.squares->exchange.as<float>();
  in.eps = heads->second.eps;
  plan.phase.head_shift = static_cast<uint8_t>(heads->second.shift);
  return true;
}

}  // namespace walsh::cuda
