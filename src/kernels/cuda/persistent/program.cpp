#include "kernels/cuda/persistent/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/persistent/phase.h"
#include "kernels/cuda/persistent/tile_share.h"
#include "rotate/rotation.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using detail::PassProduct;

// Inputs of more units are made by all blocks together, of others a unit by every warp of a pair.
constexpr int kOwnUnits = 2 * kStepWarps;
constexpr int kMostTiles = 65535;
constexpr int64_t kStatic = 2048;  // shared memory of the runtime and of the kernel

// What a tile costs: in long phases those of 2, 3 and 4 bits take times like 28, 38 and 48
// (docs/gpu.md).
int tile_weight(const StepCode& code) {
  return 10 * code.vectors + 8;
}

int64_t aligned(int64_t bytes) {
  return (bytes + 127) / 128 * 128;
}

// Room for whole units, which no write has been to, unless the array has it. False if it has
// another number of values.
bool make_exchange(StepArray& array, int64_t floats) {
  if (array.count == 0) {
    const int64_t units = (floats + kUnitColumns - 1) / kUnitColumns;
    array.exchange = Buffer(static_cast<uint64_t>(units * kUnitColumns) * sizeof(float), true);
    array.count = floats;
  }
  return array.count == floats;
}

bool can_make(const InputSource& source, const InputForm& form) {
  if (source.up && source.function != GateFunction::silu) return false;
  if (!form.out || form.out->planes != 1 || form.rotation.kind == RotationKind::qr) return false;
  if (form.rotation.kind == RotationKind::hadamard && form.rotation.block > kUnitColumns)
    return false;
  return input_view(source).vectors &&
         (!source.gain || form.out->cols <= int64_t{kNormedUnits} * kUnitColumns);
}

}  // namespace

StepProgram::StepProgram() = default;
StepProgram::~StepProgram() = default;
StepProgram::StepProgram(StepProgram&&) noexcept = default;
StepProgram& StepProgram::operator=(StepProgram&&) noexcept = default;

bool StepProgram::available() {
  return current_device().major >= 9 && current_device().shared_bytes >= size_t{227} << 10;
}

bool StepProgram::multiply(const InputSource& source, std::span<const InputForm> forms,
                           std::span<const Product> products) {
  for (const Product& p : products)
    if (p.pass[1]) return false;
  return detail::for_inputs(products, 0, [&](std::span<const PassProduct> group) {
    const auto form = std::find_if(forms.begin(), forms.end(), [&](const InputForm& f) {
      return f.out == group.front().input;
    });
    return form != forms.end() && can_make(source, *form) && add_product(source, *form, group);
  });
}

// The arrays that there are.
std::vector<StepArray*> StepProgram::present(const std::array<StepArray*, kStepArrays>& arrays) {
  std::vector<StepArray*> out;
  std::copy_if(arrays.begin(), arrays.end(), std::back_inserter(out),
               [](const StepArray* array) { return array != nullptr; });
  return out;
}

bool StepProgram::add_phase(StepPhase phase, StepOrder::Work work, const Arrays& arrays) {
  const auto tag = [](const StepArray& array) {
    return StepTag{array.written >= 0, static_cast<uint8_t>(array.writes & 1), 0};
  };
  for (size_t i = 0; i < kStepArrays; ++i)
    if (arrays.in[i] != nullptr) phase.in[i] = tag(*arrays.in[i]);
  if (!order_.add(work, present(arrays.in), present(arrays.out))) return false;
  for (size_t i = 0; i < kStepArrays; ++i)
    if (arrays.out[i] != nullptr) phase.out[i] = tag(*arrays.out[i]);
  phases_.push_back(phase);
  links_.push_back(arrays);
  return true;
}

bool StepProgram::add_product(const InputSource& source, const InputForm& form,
                              std::span<const PassProduct> group) {
  const Activations& x = *form.out;
  StepPhase phase;
  MatvecArgs& args = phase.matvec;
  detail::describe_group(group, args);
  if (args.units == 1) {
    args.scale_step = args.scale_tile;
    args.offset_step = args.offset_tile;
  }
  if (!describe_codes(group, phase)) return false;
  args.m = args.vectors = 1;
  args.in = input_view(source);
  args.form = form_view(source, form, 1);
  phase.unit_bytes = static_cast<uint16_t>(input_bytes(1, 0, x.group));
  if (args.form.block >= kLeastSegment && args.form.block <= kUnitColumns &&
      args.form.full == args.form.cols && x.group == 128)
    phase.segment = static_cast<uint16_t>(args.form.block);
  phase.signs = signs_of(args.form);
  Arrays arrays;
  const float** const rows[] = {&args.in.x, &args.in.up};
  for (size_t i = 0; i < 2; ++i) {
    if (*rows[i] == nullptr) continue;
    arrays.in[i] = array(*rows[i]);
    if (arrays.in[i]->written < 0) continue;
    if (arrays.in[i]->count != source.width) return false;  // must be read wholly
    *rows[i] = arrays.in[i]->exchange.as<float>();
  }
  // Both or none, so that one question decides how they are read.
  if (arrays.in[1] && (arrays.in[0]->written < 0) != (arrays.in[1]->written < 0)) return false;
  // With the sum of the squares of each unit.
  const int64_t bytes = args.units * int64_t{phase.unit_bytes + 8};
  int64_t& room = args.units > kOwnUnits ? input_bytes_ : own_bytes_;
  room = std::max(room, bytes);
  if (args.units <= kOwnUnits) {
    one_unit_ |= args.units == 1;
    most_own_units_ = std::max(most_own_units_, args.units);
  } else {
    StepArray* packets = add_inputs(phase, arrays);
    if (packets == nullptr) return false;
    phase.prepares = false;
    phase.packets = packets->exchange.as<uint4>();
    arrays.in = {packets};
  }
  const int last = std::max(arrays.in[0]->written, arrays.in[1] ? arrays.in[1]->written : -1);
  phase.after_attention =
      last >= 0 && phases_[static_cast<size_t>(last)].kind == StepKind::attention;
  return results_of(phase, arrays) && add_phase(phase, StepOrder::Work::product, arrays);
}

// False for a scale per row, of which units have none of their own: they must lie one after the
// other.
bool StepProgram::describe_codes(std::span<const PassProduct> group, StepPhase& phase) {
  for (size_t i = 0; i < group.size(); ++i) {
    const Matrix& m = *group[i].matrix;
    MatvecArgs args;
    detail::describe_matrix(m, args);
    const bool scales = args.scale_step == args.scale_vectors * 16 || args.units == 1;
    const bool offsets = args.offset_step == args.offset_vectors * 16 || args.units == 1;
    const bool table = table_bytes(m.code.decoder) > 0;  // which a step has no room for
    if (!scales || !offsets || table) return false;
    StepCode& code = phase.code[i];
    code.table = args.table;
    code.unit = args.unit;
    code.decoder = m.code.decoder;
    code.flush = static_cast<uint8_t>(detail::flush_columns(m, *group[i].input));
    code.vectors = static_cast<uint8_t>(m.code.vectors());
    code.scale_vectors = static_cast<uint8_t>(args.scale_vectors);
    code.scale_shift = static_cast<uint8_t>(args.scale_shift);
    code.offset_vectors = static_cast<uint8_t>(args.offset_vectors);
    codes_.kinds.insert({code.decoder, code.flush});
    codes_.apart |= !detail::same_launch(group[0], group[i]);
  }
  return true;
}

bool StepProgram::Codes::wide() const {
  return std::any_of(kinds.begin(), kinds.end(), [](const auto& kind) {
    return kind.first == DecoderKind::scalar8 || kind.second == 32;
  });
}

StepMemory StepProgram::Codes::memory() const {
  if (several()) return step_memory_of_several(wide());
  return step_memory(code_vectors(kinds.begin()->first), kinds.begin()->second);
}

StepKernel StepProgram::Codes::kernel() const {
  if (several()) return step_kernel_of_several(wide());
  const auto& [decoder, flush] = *kinds.begin();
  return with_decoder(decoder, [flush]<typename Decoder>() -> StepKernel {
    if constexpr (std::is_same_v<Decoder, ProductDecoder>) {
      throw Error(ErrorCode::internal, "step", "has no kernel for the code");
    } else {
      return step_kernel<Decoder>(flush);
    }
  });
}

// Signs of a rotation, of which a step has few.
const uint8_t* StepProgram::signs_of(const FormView& form) {
  if (form.block == 0 || !form.signs) return nullptr;
  for (const Signs& known : signs_)
    if (known.seed == form.seed && known.cols == form.cols) return known.bits.as<uint8_t>();
  std::vector<uint8_t> bits(static_cast<size_t>(form.cols / kLaneColumns));
  for (int i = 0; i < form.cols; ++i)
    if (rotation_sign(form.seed, static_cast<uint64_t>(i)) < 0)
      bits[static_cast<size_t>(i / kLaneColumns)] |= static_cast<uint8_t>(1 << i % kLaneColumns);
  signs_.push_back({form.seed, form.cols, Buffer(bits.size())});
  copy_to_device(signs_.back().bits.as(), bits.data(), bits.size(), nullptr);
  synchronize(nullptr);
  return signs_.back().bits.as<uint8_t>();
}

// The inputs of a product, made by all blocks together: to packets that nobody reads any more.
StepArray* StepProgram::add_inputs(const StepPhase& product, const Arrays& sources) {
  StepPhase phase = product;
  phase.kind = StepKind::inputs;
  Arrays arrays = sources;
  const int64_t count = int64_t{product.matvec.units} * (kUnitPackets + 1);
  for (const auto& packets : packets_)
    if (packets->count == count &&
        order_.may_add(StepOrder::Work::part, present(sources.in), {{packets.get()}}))
      arrays.out[0] = packets.get();
  if (arrays.out[0] == nullptr) {
    arrays.out[0] = packets_.emplace_back(std::make_unique<StepArray>()).get();
    arrays.out[0]->exchange = Buffer(static_cast<uint64_t>(count) * 16, true);
    arrays.out[0]->count = count;
  }
  phase.packets = arrays.out[0]->exchange.as<uint4>();
  return add_phase(phase, StepOrder::Work::part, arrays) ? arrays.out[0] : nullptr;
}

// Where the results of a product go. What is added to must have been written by the same threads.
bool StepProgram::results_of(StepPhase& phase, Arrays& arrays) {
  MatvecArgs& args = phase.matvec;
  bool uneven = false;
  for (size_t i = 1; i < arrays.out.size(); ++i)
    uneven |= args.set[i].y != nullptr && phase.code[i].vectors != phase.code[0].vectors;
  for (size_t i = 0; i < arrays.out.size(); ++i) {
    TileSet& set = args.set[i];
    if (set.y == nullptr) continue;
    StepArray* out = arrays.out[i] = array(set.y);
    const bool same =
        out->first_tile == set.first_tile && out->tiles == args.tiles && !out->uneven && !uneven;
    if (!make_exchange(*out, set.rows) || (set.add && out->written >= 0 && !same)) return false;
    out->first_tile = set.first_tile;
    out->tiles = args.tiles;
    out->uneven = uneven;
    set.exchange = out->exchange.as<float>();
  }
  return true;
}

int64_t StepProgram::shared_bytes() const {
  return codes_.memory().ring_bytes() + 2 * aligned(own_bytes_) + aligned(input_bytes_) +
         aligned(sum_bytes_) + kKnownPhases * int64_t{sizeof(StepPhase) + kWorkBytes};
}

bool StepProgram::attend(const RopeCall& rope, const AttentionCall& call,
                         const AttentionScratch& scratch) {
  const KvPool& pool = *call.cache;
  if (call.m != 1 || (pool.head_dim != 64 && pool.head_dim != 128)) return false;
  detail::cache_view(call);  // refuses what no kernel reads
  if (turned_pairs(rope, pool.head_dim) != pool.head_dim / 2 || call.logit_cap != 0) return false;
  StepAttention a;
  a.keys = pool.keys.as<uint16_t>();
  a.values = pool.values.as<uint16_t>();
  a.q_norm = rope.q_norm;
  a.k_norm = rope.k_norm;
  a.cos = rope.cos;
  a.sin = rope.sin;
  a.out = call.out;
  a.partials = scratch.partials();
  a.arrived = scratch.arrived();
  a.eps = rope.eps;
  a.scale = call.scale * kLog2E;
  a.heads = call.heads;
  a.kv_heads = pool.kv_heads;
  a.head_dim = pool.head_dim;
  a.group = call.heads / pool.kv_heads;
  a.tiles = detail::head_tiles(call.heads, pool.kv_heads);
  a.window = static_cast<int>(call.window);
  Arrays arrays;
  const float* const rows[] = {rope.q, rope.k, rope.v};
  const float** const places[] = {&a.q, &a.k, &a.v};
  for (size_t i = 0; i < 3; ++i) {
    arrays.in[i] = array(rows[i]);
    const bool here = arrays.in[i]->written >= 0;
    if (here && arrays.in[i]->count != (i == 0 ? a.heads : a.kv_heads) * int64_t{a.head_dim})
      return false;
    *places[i] = here ? arrays.in[i]->exchange.as<float>() : rows[i];
  }
  StepArray* out = array(call.out);
  const int64_t count = int64_t{a.heads} * a.head_dim;
  if (!make_exchange(*out, count)) return false;
  a.exchange = out->exchange.as<float>();
  arrays.out = {out};
  input_bytes_ = std::max<int64_t>(input_bytes_, kStepAttentionBytes);
  row_ = {call.rows, call.table};
  return add_phase(StepPhase(a), StepOrder::Work::part, arrays);
}

// Every block has a part of every product.
void StepProgram::share_work() {
  blocks_ = current_device().multiprocessors;
  for (const StepPhase& phase : phases_)
    if (phase.kind != StepKind::attention) blocks_ = std::min(blocks_, phase.matvec.tiles);
  blocks_ -= blocks_ > 1 ? blocks_ % 2 : 0;
  const auto stride = static_cast<size_t>(blocks_) + 1;
  shares_.assign(phases_.size() * stride, 0);
  for (size_t i = 0; i < phases_.size(); ++i) {
    StepPhase& phase = phases_[i];
    for (size_t j = 0; j < kStepArrays; ++j) {
      if (links_[i].in[j]) phase.in[j].flips = links_[i].in[j]->writes & 1;
      if (links_[i].out[j]) phase.out[j].flips = links_[i].out[j]->writes & 1;
    }
    if (phase.kind == StepKind::attention) {
      StepAttention& a = phase.attention;
      const int most =
          detail::attention_splits(1, a.heads, a.kv_heads, kMostBlocks, int64_t{1} << 40);
      a.most_splits =
          std::clamp(std::min(blocks_ / (a.kv_heads * a.tiles), most), 1, kStepMaxSplits);
      continue;
    }
    MatvecArgs& args = phase.matvec;
    args.tiles_per_block = args.tiles / blocks_;
    args.blocks_with_more = args.tiles % blocks_;
    const int most = share_tiles_of(phase, std::span(shares_).subspan(i * stride, stride));
    longest_run_ = std::max(longest_run_, most * args.units / kStepWarps + 1);
    sum_bytes_ = std::max<int64_t>(sum_bytes_, int64_t{most + kStepWarps} * kTileRows * 4);
  }
}

// The first tile of each block, and the most that one has.
int StepProgram::share_tiles_of(StepPhase& phase, std::span<uint16_t> first) const {
  const MatvecArgs& args = phase.matvec;
  std::vector<TileRun> runs;
  for (size_t i = 0; i < kMaxProducts; ++i) {
    const TileSet& set = args.set[i];
    if (set.codes == nullptr) continue;
    const int tiles = (set.rows + kTileRows - 1) / kTileRows;
    runs.push_back({tiles, tile_weight(phase.code[i])});
  }
  const std::vector<int> shares = share_tiles(runs, blocks_);
  int most = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    first[i] = static_cast<uint16_t>(shares[i]);
    if (i > 0) most = std::max(most, shares[i] - shares[i - 1]);
  }
  return most;
}

// Products bring the phases behind them into shared memory, over those before the last product;
// streams of weights may still stand at the latter. False if a phase would not be there in time.
bool StepProgram::schedule() {
  const int count = static_cast<int>(phases_.size());
  int known = std::min(count, kFirstPhases), turn = 0;
  int last = 0, before = 0;  // products
  for (int i = 0; i < count; ++i) {
    StepPhase& phase = phases_[static_cast<size_t>(i)];
    if (i >= known) return false;
    if (phase.kind != StepKind::product) continue;
    if (i - before >= kKnownPhases) return false;
    before = last;
    last = i;
    phase.known = known;
    known = std::min(count, i + kKnownPhases);
    if (phase.prepares) phase.turn = static_cast<uint8_t>(turn++ % 4);
  }
  return true;
}

bool StepProgram::finish() {
  if (phases_.empty() || codes_.kinds.empty())
    throw Error(ErrorCode::internal, "step", "has no products");
  if (!schedule()) return false;
  share_work();
  const bool many = std::any_of(phases_.begin(), phases_.end(), [](const StepPhase& phase) {
    return phase.kind != StepKind::attention && phase.matvec.tiles > kMostTiles;
  });
  if (longest_run_ > kLongestPiece || many) return false;
  if (shared_bytes() + kStatic > static_cast<int64_t>(current_device().shared_bytes)) return false;
  pair_ = 2;
  if (blocks_ == 1 || one_unit_ ||
      2 * most_clusters("decoding step", codes_.kernel(), shape()) < blocks_)
    pair_ = 1;
  if (pair_ * kStepWarps < most_own_units_) return false;
  device_phases_ = Buffer(phases_.size() * sizeof(StepPhase));
  device_shares_ = Buffer(shares_.size() * sizeof(uint16_t));
  copy_to_device(device_shares_.as(), shares_.data(), device_shares_.bytes(), nullptr);
  left_ = Buffer(2 * sizeof(uint32_t), true);
  copy_to_device(device_phases_.as(), phases_.data(), device_phases_.bytes(), nullptr);
  synchronize(nullptr);
  count_ = static_cast<int>(phases_.size());
  phases_ = {};
  links_ = {};
  shares_ = {};
  return true;
}

LaunchShape StepProgram::shape() const {
  return {dim3(static_cast<unsigned>(blocks_)), dim3(kStepWarps * 32),
          static_cast<size_t>(shared_bytes()), static_cast<unsigned>(pair_), true};
}

void StepProgram::launch(Stream stream) const {
  StepArgs args;
  args.phases = device_phases_.as<StepPhase>();
  args.count = count_;
  args.pair = pair_;
  args.own_bytes = static_cast<int>(aligned(own_bytes_));
  args.input_bytes = static_cast<int>(aligned(input_bytes_));
  args.sum_bytes = static_cast<int>(aligned(sum_bytes_));
  args.left = left_.as<uint32_t>();
  args.shares = device_shares_.as<uint16_t>();
  args.position = row_.places.positions;
  args.sequence = row_.places.sequences;
  args.pages = row_.table.pages;
  args.pages_per_sequence = row_.table.per_sequence;
  cuda::launch("decoding step", codes_.kernel(), shape(), stream, args);
}

}  // namespace walsh::cuda
