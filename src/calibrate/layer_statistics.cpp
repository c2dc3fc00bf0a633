#include "calibrate/layer_statistics.h"

#include <fmt/format.h>

#include "calibrate/cpu_meter.h"
#include "calibrate/gpu_meter.h"
#include "calibrate/text_windows.h"
#include "walsh/error.h"

namespace walsh {

LayerStatistics::LayerStatistics(const std::string& folder,
                                 std::vector<std::vector<int32_t>> windows, ThreadPool& pool,
                                 std::function<void()> check, const std::optional<Rotation>& fold,
                                 const Device& device)
    : checkpoint_(folder, pool, fold) {
  check_windows(checkpoint_.config(), windows);
  if (device.cuda) {
    try {
      meter_ = std::make_unique<GpuMeter>(checkpoint_, windows, device, check);
      return;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::usage && e.code() != ErrorCode::limit) throw;
      note_ = fmt::format("{} cannot run the text of --calibrate, so the CPU does: {}",
                          device.name(), e.what());
    }
  }
  meter_ = std::make_unique<CpuMeter>(checkpoint_, std::move(windows), std::move(check));
}

const InputMoments& LayerStatistics::moments(int site) {
  const auto [layer, index] = place_of(site);
  if (layer < layer_) {
    meter_->restart();
    layer_ = -1;
  }
  while (layer_ < layer) {
    measured_.clear();  // this frees its memory first
    measured_ = meter_->run(++layer_);
  }
  return measured_[index].moments;
}

const InputMoments& LayerStatistics::expert_moments(int site, int expert) {
  moments(site);
  const auto& experts = measured_[place_of(site).second].experts;
  const auto index = static_cast<size_t>(expert);
  return index < experts.size() && experts[index] ? *experts[index] : nothing_;
}

// Returns the layer of a site and its index among the layer's sites; the head's layer is the number
// of layers.
std::pair<int64_t, size_t> LayerStatistics::place_of(int site) const {
  auto index = static_cast<size_t>(site);
  int64_t layer = 0;
  for (const LayerDesc& desc : checkpoint_.config().layers) {
    if (index < desc.activations.size()) return {layer, index};
    index -= desc.activations.size();
    ++layer;
  }
  if (site < 0 || index > 0) {
    throw Error(ErrorCode::internal, "calibration",
                "nothing is measured at site " + std::to_string(site));
  }
  return {layer, 0};
}

}  // namespace walsh
