#include "kernels/cuda/persistent/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/planned_phase.h"
#include "rotate/rotation.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using detail::make_exchange;
using detail::PassMatmul;

constexpr int kMostTiles = 65535;
// Returns how much shared memory the runtime, and the kernel statically, use.
constexpr int64_t static_bytes(int rows) {
  return rows == 1 ? 2048 : 3072;
}

int64_t aligned(int64_t bytes) {
  return (bytes + 127) / 128 * 128;
}

}  // namespace

bool detail::make_exchange(ExchangeArray& array, int64_t floats, int rows) {
  if (array.count == 0) {
    const int64_t values = int64_t{rows} * exchange_stride(static_cast<int>(floats));
    array.exchange = Buffer(static_cast<uint64_t>(values) * sizeof(float), true);
    array.count = floats;
  }
  return array.count == floats;
}

bool detail::can_make(const InputSource& source, const InputForm& form) {
  if (source.up && source.function != GateFunction::silu) return false;
  if (!form.out || form.out->planes != 1 || form.rotation.kind == RotationKind::qr) return false;
  if (form.rotation.kind == RotationKind::hadamard && form.rotation.block > kKTileColumns)
    return false;
  return input_view(source).vectors &&
         (!source.gain || form.out->cols <= int64_t{kNormedKTiles} * kKTileColumns);
}

uint16_t detail::segment_of(const FormView& form) {
  const bool whole = form.block >= kLeastSegment && form.block <= kKTileColumns &&
                     form.full == form.cols && form.group == 128;
  return static_cast<uint16_t>(whole ? form.block : 0);
}

PersistentProgram::PersistentProgram() = default;
PersistentProgram::PersistentProgram(int rows) {
  codes_.rows = rows;
}
PersistentProgram::~PersistentProgram() = default;
PersistentProgram::PersistentProgram(PersistentProgram&&) noexcept = default;
PersistentProgram& PersistentProgram::operator=(PersistentProgram&&) noexcept = default;

bool PersistentProgram::available() {
  return current_device().major >= 9 && current_device().shared_bytes >= size_t{227} << 10;
}

bool PersistentProgram::multiply(const InputSource& source, std::span<const InputForm> forms,
                                 std::span<const Matmul> products) {
  for (const Matmul& p : products)
    if (p.pass[1]) return false;
  return detail::for_inputs(products, 0, [&](std::span<const PassMatmul> group) {
    const auto form = std::find_if(forms.begin(), forms.end(), [&](const InputForm& f) {
      return f.out == group.front().input;
    });
    return form != forms.end() && detail::can_make(source, *form) &&
           add_product(source, *form, group);
  });
}

// Returns the arrays that are not null.
std::vector<ExchangeArray*> PersistentProgram::present(
    const std::array<ExchangeArray*, kPhaseArrays>& arrays) {
  std::vector<ExchangeArray*> out;
  std::copy_if(arrays.begin(), arrays.end(), std::back_inserter(out),
               [](const ExchangeArray* array) { return array != nullptr; });
  return out;
}

bool PersistentProgram::add_phase(Planned plan, PhaseOrder::Work work) {
  const Arrays& arrays = plan.arrays;
  const auto tag = [](const ExchangeArray& array) {
    return ValueTag{array.written >= 0, static_cast<uint8_t>(array.writes & 1), 0};
  };
  for (size_t i = 0; i < kPhaseArrays; ++i)
    if (arrays.in[i] != nullptr) plan.phase.in[i] = tag(*arrays.in[i]);
  if (!order_.add(work, present(arrays.in), present(arrays.out))) return false;
  for (size_t i = 0; i < kPhaseArrays; ++i)
    if (arrays.out[i] != nullptr) plan.phase.out[i] = tag(*arrays.out[i]);
  phases_.push_back(plan.phase);
  experts_.push_back(plan.experts);
  links_.push_back(arrays);
  return true;
}

bool PersistentProgram::add_product(const InputSource& source, const InputForm& form,
                                    std::span<const PassMatmul> group) {
  Planned plan;
  return describe_product(source, form, group, plan) && read_rows(source.width, plan) &&
         place_inputs(plan) && finish_product(plan);
}

// Sets the arguments of a product and of its input.
bool PersistentProgram::describe_product(const InputSource& source, const InputForm& form,
                                         std::span<const PassMatmul> group, Planned& plan) {
  ProgramPhase& phase = plan.phase;
  GemvArgs& args = phase.gemv;
  detail::describe_group(group, args);
  if (args.k_tiles == 1) {
    args.scale_step = args.scale_tile;
    args.offset_step = args.offset_tile;
  }
  if (!describe_codes(group, phase)) return false;
  const int rows = codes_.rows, tiles8 = rows == 1 ? 0 : 1;
  args.m = args.vectors = rows;
  args.in = input_view(source);
  args.form = form_view(source, form, rows);
  phase.k_tile_bytes = static_cast<uint16_t>(input_bytes(rows, tiles8, form.out->group));
  phase.segment = detail::segment_of(args.form);
  phase.signs = signs_of(args.form);
  return true;
}

// Sets the rows that the input is made of. An array that the program writes has to be used with all
// of its `count` values.
bool PersistentProgram::read_rows(int64_t count, Planned& plan) {
  Arrays& arrays = plan.arrays;
  InputView& in = plan.phase.gemv.in;
  const float** const rows[] = {&in.x, &in.up};
  for (size_t i = 0; i < 2; ++i) {
    if (*rows[i] == nullptr) continue;
    arrays.in[i] = array(*rows[i]);
    if (arrays.in[i]->written < 0) continue;
    if (arrays.in[i]->count != count) return false;
    *rows[i] = arrays.in[i]->exchange.as<float>();
  }
  if (!read_heads(plan)) return false;
  // Both must be exchanged or both plain, so that one condition tells how they are read.
  return !arrays.in[1] || (arrays.in[0]->written < 0) == (arrays.in[1]->written < 0);
}

// Decides where the k-tiles of the input are made: in a phase of their own if there are many.
bool PersistentProgram::place_inputs(Planned& plan) {
  ProgramPhase& phase = plan.phase;
  Arrays& arrays = plan.arrays;
  const int k_tiles = phase.gemv.k_tiles;
  const bool own = k_tiles <= detail::most_own_k_tiles(codes_.rows);
  const int squares = phase.gemv.in.gain != nullptr || codes_.rows == 1 ? 8 * codes_.rows : 0;
  const int64_t bytes = k_tiles * int64_t{phase.k_tile_bytes + squares};
  int64_t& room = own ? own_bytes_ : input_bytes_;
  room = std::max(room, bytes);
  if (own) {
    one_k_tile_ |= k_tiles == 1;
    most_own_k_tiles_ = std::max(most_own_k_tiles_, k_tiles);
  } else {
    ExchangeArray* packets = add_inputs(plan);
    if (packets == nullptr) return false;
    phase.prepares = false;
    phase.packets = packets->exchange.as<uint4>();
    arrays.in = {packets};
  }
  const int last = std::max(arrays.in[0]->written, arrays.in[1] ? arrays.in[1]->written : -1);
  phase.after_attention =
      last >= 0 && (phases_[static_cast<size_t>(last)].kind == PhaseKind::attention ||
                    phases_[static_cast<size_t>(last)].kind == PhaseKind::delta);
  return true;
}

bool PersistentProgram::finish_product(Planned& plan) {
  return results_of(plan) && add_phase(plan, PhaseOrder::Work::matmul);
}

// Describes the codes of products. Returns false for one scale per row, because the scales of
// consecutive k-tiles have to be contiguous.
bool PersistentProgram::describe_codes(std::span<const PassMatmul> group, ProgramPhase& phase) {
  for (size_t i = 0; i < group.size(); ++i) {
    const Matrix& m = *group[i].matrix;
    GemvArgs args;
    detail::describe_matrix(m, args);
    const bool scales = args.scale_step == args.scale_vectors * 16 || args.k_tiles == 1;
    const bool offsets = args.offset_step == args.offset_vectors * 16 || args.k_tiles == 1;
    const bool table = table_bytes(m.code.decoder) > 0;  // The kernel has no room for a table.
    if (!scales || !offsets || table) return false;
    PhaseCode& code = phase.code[i];
    code.table = args.table;
    code.unit = args.unit;
    code.decoder = m.code.decoder;
    code.flush = static_cast<uint8_t>(detail::flush_columns(m, *group[i].input));
    code.words = static_cast<uint8_t>(code_words(m.code.decoder));
    code.scale_vectors = static_cast<uint8_t>(args.scale_vectors);
    code.scale_shift = static_cast<uint8_t>(args.scale_shift);
    code.offset_vectors = static_cast<uint8_t>(args.offset_vectors);
    codes_.kinds.insert({code.decoder, code.flush});
    codes_.apart |= !detail::same_launch(group[0], group[i]);
  }
  return codes_.known();
}

// Returns the signs of a rotation on the device. A step has few different ones.
const uint8_t* PersistentProgram::signs_of(const FormView& form) {
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

// Adds a phase in which all blocks together make the inputs of a product, in packets that no block
// still reads.
ExchangeArray* PersistentProgram::add_inputs(const Planned& product) {
  Planned plan = product;
  ProgramPhase& phase = plan.phase;
  phase.kind = PhaseKind::inputs;
  ExchangeArray*& to = plan.arrays.out[0];
  const int64_t each = codes_.rows == 1 ? kKTilePackets + 1 : kRowPackets;
  const int64_t count = int64_t{phase.gemv.k_tiles} * codes_.rows * each;
  for (const auto& packets : packets_)
    if (packets->count == count &&
        order_.may_add(PhaseOrder::Work::part, present(plan.arrays.in), {{packets.get()}}))
      to = packets.get();
  if (to == nullptr) {
    to = packets_.emplace_back(std::make_unique<ExchangeArray>()).get();
    to->exchange = Buffer(static_cast<uint64_t>(count) * 16, true);
    to->count = count;
  }
  phase.packets = to->exchange.as<uint4>();
  ExchangeArray* const made = to;
  return add_phase(plan, PhaseOrder::Work::part) ? made : nullptr;
}

// Sets where the results of a product go. An array that is added to must have been written by the
// same threads, otherwise this returns false.
bool PersistentProgram::results_of(Planned& plan) {
  const ProgramPhase& phase = plan.phase;
  Arrays& arrays = plan.arrays;
  GemvArgs& args = plan.phase.gemv;
  bool uneven = false;
  for (size_t i = 1; i < arrays.out.size(); ++i)
    uneven |= args.set[i].y != nullptr && phase.code[i].words != phase.code[0].words;
  for (size_t i = 0; i < arrays.out.size(); ++i) {
    TileSet& set = args.set[i];
    if (set.y == nullptr) continue;
    ExchangeArray* out = arrays.out[i] = array(set.y);
    const bool same =
        out->first_tile == set.first_tile && out->tiles == args.tiles && !out->uneven && !uneven;
    if (!make_exchange(*out, set.rows, codes_.rows) || (set.add && out->written >= 0 && !same))
      return false;
    out->first_tile = set.first_tile;
    out->tiles = args.tiles;
    out->uneven = uneven;
    set.exchange = out->exchange.as<float>();
  }
  return true;
}

int64_t PersistentProgram::shared_bytes() const {
  const int64_t all = codes_.memory().ring_bytes() + 2 * aligned(own_bytes_) +
                      aligned(input_bytes_) + aligned(sum_bytes_) +
                      kKnownPhases * int64_t{sizeof(ProgramPhase) + kWorkBytes};
  return codes_.experts ? all + kKnownPhases * int64_t{sizeof(ExpertPhase)} + choice_bytes_ : all;
}

// Decides which phases are loaded when. Products load the phases that follow into shared memory, in
// place of those before the last product, because streams of weights may still be at the last
// product. Returns false if a phase would be loaded too late.
bool PersistentProgram::schedule() {
  const int count = static_cast<int>(phases_.size());
  int known = std::min(count, kFirstPhases), turn = 0;
  int last = 0, before = 0;  // They are the last product, and the one before it.
  for (int i = 0; i < count; ++i) {
    ProgramPhase& phase = phases_[static_cast<size_t>(i)];
    if (i >= known) return false;
    if (phase.kind != PhaseKind::matmul) continue;
    if (i - before >= kKnownPhases) return false;
    before = last;
    last = i;
    phase.known = known;
    if (experts_[static_cast<size_t>(i)].last >= known) return false;
    known = std::min(count, i + kKnownPhases);
    if (phase.prepares) phase.turn = static_cast<uint8_t>(turn++ % 4);
  }
  return true;
}

// Chooses the order of inputs that suits trellis codes best, if only trellis codes read them and
// there is room.
void PersistentProgram::double_inputs() {
  if (codes_.several() || !codes_.trellis()) return;
  const int64_t own = own_bytes_;
  for (ProgramPhase& phase : phases_) {
    phase.doubled = phase.kind == PhaseKind::matmul && phase.prepares;
    if (!phase.doubled) continue;
    const int bytes = input_bytes(1, 0, phase.gemv.x_group, true);
    phase.k_tile_bytes = static_cast<uint16_t>(bytes);
    own_bytes_ = std::max(own_bytes_, phase.gemv.k_tiles * int64_t{bytes + 8});
  }
  if (fits()) return;
  own_bytes_ = own;
  for (ProgramPhase& phase : phases_) {
    if (!phase.doubled) continue;
    phase.doubled = false;
    phase.k_tile_bytes = static_cast<uint16_t>(input_bytes(1, 0, phase.gemv.x_group));
  }
}

bool PersistentProgram::fits() const {
  return shared_bytes() + static_bytes(codes_.rows) <=
         static_cast<int64_t>(current_device().shared_bytes);
}

bool PersistentProgram::finish() {
  if (phases_.empty() || codes_.kinds.empty())
    throw Error(ErrorCode::internal, "persistent kernel", "has no products");
  follow_choices();
  if (!codes_.known() || !schedule()) return false;
  share_work();
  const bool many = std::any_of(phases_.begin(), phases_.end(), [](const ProgramPhase& phase) {
    return detail::has_tiles(phase) && phase.gemv.tiles > kMostTiles;
  });
  if (longest_run_ > kLongestPiece || many || most_runs_ > kMaxMatmuls) return false;
  double_inputs();
  codes_.deep = fits();
  if (!fits()) return false;
  pair_ = 2;
  if (blocks_ == 1 || one_k_tile_ ||
      2 * most_clusters("persistent kernel", codes_.kernel(), shape()) < blocks_)
    pair_ = 1;
  if (codes_.rows == 1 && pair_ * kProgramWarps < most_own_k_tiles_) return false;
  device_phases_ = Buffer(phases_.size() * sizeof(ProgramPhase));
  device_shares_ = Buffer(shares_.size() * sizeof(uint16_t));
  if (codes_.experts) {
    device_experts_ = Buffer(experts_.size() * sizeof(ExpertPhase));
    copy_to_device(device_experts_.as(), experts_.data(), device_experts_.bytes(), nullptr);
  }
  copy_to_device(device_shares_.as(), shares_.data(), device_shares_.bytes(), nullptr);
  left_ = Buffer(2 * sizeof(uint32_t), true);
  copy_to_device(device_phases_.as(), phases_.data(), device_phases_.bytes(), nullptr);
  synchronize(nullptr);
  count_ = static_cast<int>(phases_.size());
  phases_ = {};
  experts_ = {};
  links_ = {};
  shares_ = {};
  return true;
}

LaunchShape PersistentProgram::shape() const {
  return {dim3(static_cast<unsigned>(blocks_)), dim3(kProgramWarps * 32),
          static_cast<size_t>(shared_bytes()), static_cast<unsigned>(pair_), true};
}

void PersistentProgram::launch(Stream stream, int rows) const {
  ProgramArgs args;
  args.phases = device_phases_.as<ProgramPhase>();
  args.count = count_;
  args.pair = pair_;
  args.own_bytes = static_cast<int>(aligned(own_bytes_));
  args.input_bytes = static_cast<int>(aligned(input_bytes_));
  args.sum_bytes = static_cast<int>(aligned(sum_bytes_));
  args.left = left_.as<uint32_t>();
  args.shares = device_shares_.as<uint16_t>();
  args.rows = rows;
  args.position = row_.places.positions;
  args.sequence = row_.places.sequences;
  args.pages = row_.table.pages;
  args.pages_per_sequence = row_.table.per_sequence;
  args.kept = row_.kept;
  args.experts = device_experts_.as<ExpertPhase>();
  args.first_choice = first_choice_;
  cuda::launch("persistent kernel", codes_.kernel(), shape(), stream, args);
}

}  // namespace walsh::cuda
