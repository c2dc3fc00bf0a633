#include "kernels/cuda/step.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matvec_args.h"
#include "kernels/cuda/step_phase.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using detail::PassProduct;

// Inputs of more units are made by all blocks together.
constexpr int kOwnUnits = kStepWarps;
constexpr int64_t kStatic = 2048;  // shared memory of the runtime and of the kernel

int blocks() {
  return current_device().multiprocessors;
}

StepKernel kernel_for(int bits, int flush) {
  switch (bits) {
    case 2:
      return step_kernel<2>(flush);
    case 3:
      return step_kernel<3>(flush);
    case 4:
      return step_kernel<4>(flush);
    default:
      return step_kernel<8>(flush);
  }
}

int64_t aligned(int64_t bytes) {
  return (bytes + 127) / 128 * 128;
}

bool can_make(const InputSource& source, const InputForm& form) {
  if (!form.out || form.out->planes != 1 || form.rotation.kind == RotationKind::qr) return false;
  if (form.rotation.kind == RotationKind::hadamard && form.rotation.block > kUnitColumns)
    return false;
  return input_view(source).vectors &&
         (!source.gain || form.out->cols <= int64_t{kFusedUnits} * kUnitColumns);
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
  std::vector<PassProduct> passes;
  for (int pass = 0; pass < 2; ++pass)
    for (const Product& p : products)
      if (p.pass[pass]) passes.push_back({p.pass[pass], p.input[pass], &p, pass});
  for (size_t first = 0, count = 0; first < passes.size(); first += count) {
    const PassProduct& front = passes[first];
    for (count = 1; first + count < passes.size() && count < kMaxProducts; ++count)
      if (!detail::same_launch(front, passes[first + count])) break;
    const auto form = std::find_if(forms.begin(), forms.end(),
                                   [&](const InputForm& f) { return f.out == front.input; });
    if (form == forms.end() || !can_make(source, *form)) return false;
    // A second pass adds to what the first one has written, other products only share their input.
    const bool waits = first == 0 || front.pass > 0;
    if (!add_product(source, *form, {&front, count}, waits)) return false;
  }
  return true;
}

bool StepProgram::add_product(const InputSource& source, const InputForm& form,
                              std::span<const PassProduct> group, bool waits) {
  const Activations& x = *form.out;
  const int bits = group[0].matrix->code->bits, flush = detail::flush_columns(*group[0].matrix, x);
  if (bits_ != 0 && (bits != bits_ || flush != flush_)) return false;
  bits_ = bits;
  flush_ = flush;
  StepPhase phase;
  MatvecArgs& args = phase.matvec;
  detail::describe_group(group, args);
  args.m = args.vectors = 1;
  args.in = input_view(source);
  args.form = form_view(source, form, 1);
  args.q = x.q.as<int8_t>();
  args.x_scales = x.scales.as<float>();
  args.x_sums = x.sums.as<int32_t>();
  args.tiles_per_block = args.tiles / blocks();
  args.blocks_with_more = args.tiles % blocks();
  phase.waits = waits;
  if (args.units > kOwnUnits) {
    StepPhase inputs = phase;
    inputs.kind = StepKind::inputs;
    inputs.waits = true;
    phases_.push_back(inputs);
    phase.waits = true;
    phase.prepares = false;
  }
  phases_.push_back(phase);
  const int pieces = args.tiles_per_block + 1 + kStepWarps;
  input_bytes_ = std::max<int64_t>(input_bytes_, args.units * input_bytes(1, 0, x.group));
  sum_bytes_ = std::max<int64_t>(sum_bytes_, int64_t{pieces} * kTileRows * 4);
  return shared_bytes() + kStatic <= static_cast<int64_t>(current_device().shared_bytes);
}

int64_t StepProgram::shared_bytes() const {
  return step_memory(bits_, flush_).ring_bytes() + aligned(input_bytes_) + aligned(sum_bytes_) +
         kKnownPhases * int64_t{sizeof(StepPhase)};
}

bool StepProgram::attend(const RopeCall& rope, const AttentionCall& call,
                         const AttentionScratch& scratch) {
  const KvPool& pool = *call.cache;
  if (call.m != 1 || (pool.head_dim != 64 && pool.head_dim != 128)) return false;
  detail::cache_view(call);  // refuses what no kernel reads
  StepPhase phase;
  phase.kind = StepKind::attention;
  StepAttention& a = phase.attention;
  a.keys = pool.keys.as<uint16_t>();
  a.values = pool.values.as<uint16_t>();
  a.q = rope.q;
  a.k = rope.k;
  a.v = rope.v;
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
  const int most =
      detail::attention_splits(1, call.heads, pool.kv_heads, pool.head_dim, int64_t{1} << 40);
  a.most_splits = std::clamp(std::min(blocks() / (a.kv_heads * a.tiles), most), 1, kStepMaxSplits);
  phases_.push_back(phase);
  input_bytes_ = std::max<int64_t>(input_bytes_, kStepAttentionBytes);
  row_ = {call.rows, call.table};
  return true;
}

void StepProgram::finish() {
  if (phases_.empty() || bits_ == 0) throw Error(ErrorCode::internal, "step", "has no products");
  if (shared_bytes() + kStatic > static_cast<int64_t>(current_device().shared_bytes)) {
    throw Error(ErrorCode::internal, "step",
                fmt::format("takes {} bytes of shared memory", shared_bytes()));
  }
  phases_[0].waits = false;
  device_phases_ = Buffer(phases_.size() * sizeof(StepPhase));
  arrived_ = Buffer(sizeof(uint32_t), true);
  squares_ = Buffer(kFusedUnits * sizeof(double));
  copy_to_device(device_phases_.as(), phases_.data(), device_phases_.bytes(), nullptr);
  synchronize(nullptr);
  count_ = static_cast<int>(phases_.size());
  phases_ = {};
}

void StepProgram::launch(Stream stream) const {
  StepArgs args;
  args.phases = device_phases_.as<StepPhase>();
  args.count = count_;
  args.input_bytes = static_cast<int>(aligned(input_bytes_));
  args.sum_bytes = static_cast<int>(aligned(sum_bytes_));
  args.arrived = arrived_.as<uint32_t>();
  args.squares = squares_.as<double>();
  args.position = row_.places.positions;
  args.sequence = row_.places.sequences;
  args.pages = row_.table.pages;
  args.pages_per_sequence = row_.table.per_sequence;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks())), dim3(kStepWarps * 32),
                          static_cast<size_t>(shared_bytes()), 1, true};
  cuda::launch("decoding step", kernel_for(bits_, flush_), shape, stream, args);
}

}  // namespace walsh::cuda
