#include "model/cuda/delta_net.h"

#include <algorithm>

#include "base/checked.h"

namespace walsh {
namespace {

constexpr int64_t kAlignment = 4;  // Arrays begin at multiples of 4 floats.

cuda::Buffer floats(int64_t count) {
  return cuda::Buffer(
      checked_mul(static_cast<uint64_t>(count), sizeof(float), "states of recurrent layers"));
}

cuda::DeltaDims dims_of(const DeltaNetDesc& d) {
  cuda::DeltaDims dims;
  dims.key_heads = static_cast<int>(d.key_heads);
  dims.value_heads = static_cast<int>(d.value_heads);
  dims.key_dim = static_cast<int>(d.key_dim);
  dims.value_dim = static_cast<int>(d.value_dim);
  dims.taps = static_cast<int>(d.taps);
  dims.additive = d.additive;
  return dims;
}

// Returns the state marks that belong to a run, in the order of their rows.
std::vector<StateMark> marks_of(std::span<const StateMark> marks, size_t run) {
  std::vector<StateMark> own;
  std::copy_if(marks.begin(), marks.end(), std::back_inserter(own),
               [&](const StateMark& mark) { return mark.run == run; });
  std::sort(own.begin(), own.end(),
            [](const StateMark& a, const StateMark& b) { return a.rows < b.rows; });
  return own;
}

}  // namespace

CudaDeltaNet::CudaDeltaNet(const ModelConfig& config, const ModelSteps& steps,
                           const CudaVectors* vectors, int64_t slots, int64_t max_rows)
    : layers_(steps.layers.size()) {
  // Only convolutions of delta nets have results of their own: at most this many channels.
  int64_t channels = 0;
  const auto place = [&](const step::Convolve& s, int index) {
    Layer& layer = layers_[static_cast<size_t>(index)];
    layer.dims = dims_of(s.net);
    layer.convolved = convolved_rows(config.layers[static_cast<size_t>(index)]);
    layer.rows_at = slot_floats_;
    layer.states_at =
        layer.rows_at +
        round_up(cuda::kept_floats(layer.convolved.channels, layer.convolved.taps), kAlignment);
    layer.end = slot_floats_ = layer.states_at + layer.dims.state_floats();
    if (!s.gated()) channels = std::max(channels, s.channels.width);
    layer.least_strength = s.net.least_strength;
    layer.most_strength = s.net.most_strength;
    if (vectors == nullptr) return;
    layer.taps = vectors->at(index, s.taps);
    layer.rate = vectors->at(index, s.rate);
    layer.bias = vectors->at(index, s.bias);
    layer.query_scale = vectors->at(index, s.query_scale);
    layer.key_scale = vectors->at(index, s.key_scale);
    layer.channel_bias = vectors->at(index, s.channel_bias);
  };
  for (const LayerSteps& layer : steps.layers) {
    for (const Step& step : layer.steps) {
      if (const auto* s = std::get_if<step::Convolve>(&step.op)) place(*s, step.layer);
      const auto* rule = std::get_if<step::DeltaRule>(&step.op);
      if (rule != nullptr && vectors != nullptr)
        layers_[static_cast<size_t>(step.layer)].skip = vectors->at(step.layer, rule->skip);
    }
  }
  states_ = floats(slots * slot_floats_);
  convolved_ = floats(max_rows * channels);
}

void CudaDeltaNet::copy_part(int64_t from, int64_t to, int64_t begin, int64_t count,
                             cuda::Stream stream) const {
  auto* slots = states_.as<float>();
  cuda::copy_on_device(slots + to * slot_floats_ + begin, slots + from * slot_floats_ + begin,
                       static_cast<uint64_t>(count) * sizeof(float), stream);
}

void CudaDeltaNet::copy(int32_t from, int32_t to, cuda::Stream stream) const {
  if (slot_floats_ > 0 && from != to) copy_part(from, to, 0, slot_floats_, stream);
}

cuda::DeltaMemory CudaDeltaNet::memory(const Layer& layer) const {
  return {states_.as<float>(), slot_floats_, layer.rows_at, layer.states_at};
}

cuda::ConvolveCall CudaDeltaNet::convolve_call(const Layer& layer, const Rows& rows) const {
  cuda::ConvolveCall call;
  call.dims = layer.dims;
  call.memory = memory(layer);
  call.places = rows.places;
  call.in = rows.channels;
  call.out = convolved_.as<float>();
  call.decay = rows.decay;
  call.strength = rows.strength;
  call.taps = layer.taps;
  call.rate = layer.rate;
  call.bias = layer.bias;
  call.query_scale = layer.query_scale;
  call.key_scale = layer.key_scale;
  call.channel_bias = layer.channel_bias;
  call.skip = layer.skip;
  call.least_strength = layer.least_strength;
  call.most_strength = layer.most_strength;
  call.m = rows.m;
  return call;
}

// Keeps the last rows of runs of several rows after the launch that convolves them, which still
// reads the rows that were kept before: those of marks, then the sequence's own.
template <typename Call>
void CudaDeltaNet::keep_runs(const Call& call, std::span<const Run> runs,
                             std::span<const StateMark> marks, cuda::Stream stream) const {
  int64_t first = 0;
  for (size_t i = 0; i < runs.size(); first += runs[i].rows, ++i) {
    const Run& run = runs[i];
    if (run.rows == 1) continue;
    for (const StateMark& mark : marks_of(marks, i))
      cuda::keep_convolved(call, first + mark.rows - 1, mark.slot, stream);
    cuda::keep_convolved(call, first + run.rows - 1, run.sequence, stream);
  }
}

// The launch keeps single rows itself.
void CudaDeltaNet::convolve_gated(int64_t index, cuda::GatedConvolveCall call,
                                  std::span<const Run> runs, std::span<const StateMark> marks,
                                  cuda::Stream stream) const {
  const Layer& layer = at(index);
  call.channels = static_cast<int>(layer.convolved.channels);
  call.taps = static_cast<int>(layer.convolved.taps);
  call.memory = memory(layer);
  cuda::convolve(call, stream);
  keep_runs(call, runs, marks, stream);
  for (const StateMark& mark : marks)
    if (runs[mark.run].rows == 1) keep_single(layer, runs[mark.run], mark, stream);
}

// apply_rule() keeps single rows.
void CudaDeltaNet::convolve(int64_t index, const Rows& rows, std::span<const Run> runs,
                            std::span<const StateMark> marks, cuda::Stream stream) const {
  const Layer& layer = at(index);
  const cuda::ConvolveCall call = convolve_call(layer, rows);
  const bool several =
      std::any_of(runs.begin(), runs.end(), [](const Run& run) { return run.rows > 1; });
  if (several) cuda::convolve(call, stream);
  keep_runs(call, runs, marks, stream);
}

void CudaDeltaNet::apply_rule(int64_t index, const Rows& rows, std::span<const Run> runs,
                              std::span<const RowGroup> groups, std::span<const StateMark> marks,
                              int64_t skip, cuda::Stream stream) const {
  const Layer& layer = at(index);
  cuda::DeltaCall call;
  call.dims = layer.dims;
  call.memory = memory(layer);
  call.places = rows.places;
  call.channels = convolved_.as<const float>();
  call.decay = rows.decay;
  call.strength = rows.strength;
  call.skip = layer.skip;
  call.out = rows.mixed;
  for (const RowGroup& group : groups) {
    if (!group.single) {
      run_rows(layer, call, group, runs[group.run], marks_of(marks, group.run), skip, stream);
      continue;
    }
    cuda::delta_steps(convolve_call(layer, rows), rows.mixed, group.first, group.end(), stream);
    for (int64_t i = 0; i < group.rows && !marks.empty(); ++i) {
      const size_t run = group.run + static_cast<size_t>(i);
      for (const StateMark& mark : marks_of(marks, run))
        keep_single(layer, runs[run], mark, stream);
    }
  }
}

// Computes a run of several rows, and copies the state to a snapshot after each mark.
void CudaDeltaNet::run_rows(const Layer& layer, const cuda::DeltaCall& call, const RowGroup& group,
                            const Run& run, std::span<const StateMark> marks, int64_t skip,
                            cuda::Stream stream) const {
  cuda::DeltaRange range;
  range.first_written = skip;
  range.slot = run.sequence;
  const auto advance = [&](int64_t rows) {
    range.begin = range.end == 0 ? group.first : range.end;
    range.end = group.first + rows;
    range.position = run.position + range.begin - group.first;
    cuda::delta_rows(call, range, stream);
  };
  for (const StateMark& mark : marks) {
    advance(mark.rows);
    copy_part(run.sequence, mark.slot, layer.states_at, layer.dims.state_floats(), stream);
  }
  advance(run.rows);
}

}  // namespace walsh
