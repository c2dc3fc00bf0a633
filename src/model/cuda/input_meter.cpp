#include "model/cuda/input_meter.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/rows/rows.h"

namespace walsh {
namespace {

constexpr int64_t kRowAlignment = 64;  // Rows begin at multiples of 64 values (128 bytes).
constexpr uint64_t kBf16 = 2;

int64_t stride_of(int64_t width) {
  return round_up(width, kRowAlignment);
}

cuda::Buffer array(std::initializer_list<int64_t> factors, uint64_t size, bool zeroed = false) {
  uint64_t bytes = size;
  for (const int64_t factor : factors)
    bytes = checked_mul(bytes, static_cast<uint64_t>(factor), "moments of inputs");
  return cuda::Buffer(bytes, zeroed);
}

}  // namespace

CudaInputMeter::CudaInputMeter(const ModelConfig& config, const ModelSteps& steps, int64_t max_rows,
                               const std::set<const Input*>& without_gain) {
  int64_t slots = 0;  // A batch has this many slots.
  for (size_t i = 0; i < steps.layers.size(); ++i) {
    const LayerSteps& layer = steps.layers[i];
    for (size_t k = 0; k < layer.inputs.size(); ++k)
      sites_[&layer.inputs[k]].width = config.layers[i].activations[k].width;
    for (const Step& step : layer.steps) {
      const auto* s = std::get_if<step::Experts>(&step.op);
      if (s == nullptr) continue;
      slots = std::max(slots, max_rows * s->experts.chosen);
      for (const int input : {s->input, s->gated_input})
        sites_[&layer.inputs[static_cast<size_t>(input)]].experts = s->experts.count;
      sites_[&layer.inputs[static_cast<size_t>(s->gated_input)]].of_all = false;
    }
  }
  if (!config.head.weight.empty()) sites_[&steps.head.inputs[0]].width = config.hidden;
  for (auto& [input, site] : sites_) {
    widest_ = std::max(widest_, site.width);
    site.without_gain = without_gain.contains(input);
    site.tokens.resize(static_cast<size_t>(site.experts) + (site.of_all ? 1 : 0));
    site.sums = array({static_cast<int64_t>(site.tokens.size()), site.width, site.width},
                      sizeof(float), true);
  }
  rows_ = array({std::max(max_rows, slots), stride_of(widest_)}, kBf16);
  if (slots > 0) slot_rows_ = array({slots, stride_of(widest_)}, kBf16);
  if (!without_gain.empty()) ones_ = array({widest_}, sizeof(float));
}

void CudaInputMeter::start(cuda::Stream stream) {
  if (ones_.empty()) return;
  const std::vector<float> ones(static_cast<size_t>(widest_), 1.0f);
  cuda::copy_to_device(ones_.as(), ones.data(), ones_.bytes(), stream);
  cuda::synchronize(stream);
}

CudaInputMeter::Site* CudaInputMeter::site_of(const Input& input) {
  const auto found = sites_.find(&input);
  return found == sites_.end() ? nullptr : &found->second;
}

cuda::InputForm CudaInputMeter::form(int64_t width, const cuda::Buffer& rows) const {
  cuda::InputForm form;
  form.rotation.kind = RotationKind::none;
  form.padded = form.stride = stride_of(width);
  form.rows = rows.as();
  form.row_type = DType::bf16;
  return form;
}

cuda::InputSource CudaInputMeter::metered(const Site& site, const cuda::InputSource& source) const {
  cuda::InputSource result = source;
  if (site.without_gain && source.gain != nullptr) result.gain = ones_.as<const float>();
  return result;
}

void CudaInputMeter::sum(Site& site, size_t place, const void* rows, int64_t m,
                         cuda::Stream stream) {
  blas_.add({rows, m, stride_of(site.width), site.width, site.sums_of(place)}, stream);
  site.tokens[place] += m;
}

void CudaInputMeter::add(const Input& input, const CudaSource& source, int64_t m,
                         cuda::Stream stream) {
  Site* const site = site_of(input);
  if (site == nullptr || !site->of_all || m == 0) return;
  const cuda::InputForm rows = form(site->width, rows_);
  if (source.gates.present()) {
    cuda::prepare(source.rows, source.gates, {&rows, 1}, m, stream);
  } else {
    cuda::prepare(metered(*site, source.rows), {&rows, 1}, m, stream);
  }
  sum(*site, 0, rows_.as(), m, stream);
}

void CudaInputMeter::choose(const MeteredChoices& choices, cuda::Stream stream) {
  choices_ = choices;
  groups_.clear();
  host_choices_.resize(static_cast<size_t>(choices.slots));
  cuda::copy_to_host(host_choices_.data(), choices.choices, host_choices_.size() * sizeof(int32_t),
                     stream);
  cuda::synchronize(stream);
  if (!choices.grouped) {
    for (int64_t i = 0; i < choices.slots; ++i)
      groups_.push_back({host_choices_[static_cast<size_t>(i)], i, 1});
    return;
  }
  std::vector<int64_t> counts;
  for (const int32_t expert : host_choices_) {
    const auto index = static_cast<size_t>(expert);
    if (counts.size() <= index) counts.resize(index + 1);
    ++counts[index];
  }
  int64_t first = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > 0) groups_.push_back({static_cast<int>(expert), first, counts[expert]});
    first += counts[expert];
  }
}

// Pairs of bf16 values are copied as floats, because a copy keeps their bits.
void CudaInputMeter::add_experts(const Input& input, const cuda::InputSource& source, int64_t m,
                                 bool by_slot, cuda::Stream stream) {
  Site* const site = site_of(input);
  if (site == nullptr || m == 0) return;
  const cuda::InputForm rows = form(site->width, rows_);
  cuda::prepare(metered(*site, source), {&rows, 1}, m, stream);
  const auto* of_slots = rows_.as<const std::byte>();
  const int64_t stride = stride_of(site->width);
  if (!by_slot) {
    cuda::gather_rows(rows_.as<const float>(), stride / 2, choices_.rows, choices_.slots,
                      slot_rows_.as<float>(), stream);
    of_slots = slot_rows_.as<const std::byte>();
  }
  for (const Group& group : groups_) {
    sum(*site, site->place(group.expert),
        of_slots + static_cast<uint64_t>(group.first * stride) * kBf16, group.count, stream);
  }
}

InputMoments CudaInputMeter::read(const Input& input, int expert, cuda::Stream stream) const {
  const Site& site = sites_.at(&input);
  if (expert < 0 && !site.of_all) return InputMoments(site.width);
  const size_t place = site.place(expert);
  if (site.tokens.at(place) == 0) return InputMoments(expert < 0 ? site.width : 0);
  InputMoments moments(site.width);
  moments.tokens = site.tokens[place];
  cuda::copy_to_host(moments.sums.data(), site.sums_of(place),
                     static_cast<uint64_t>(site.width * site.width) * sizeof(float), stream);
  cuda::synchronize(stream);
  return moments;
}

}  // namespace walsh
