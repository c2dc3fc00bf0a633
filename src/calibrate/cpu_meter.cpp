#include "calibrate/cpu_meter.h"

#include <algorithm>

#include "kernels/ops.h"

namespace walsh {
namespace {

Model load(MeasuredCheckpoint& checkpoint) {
  LoadOptions options;
  options.pool = &checkpoint.pool();
  return Model::load(checkpoint.source(), checkpoint.config(), options);
}

}  // namespace

CpuMeter::CpuMeter(MeasuredCheckpoint& checkpoint, std::vector<std::vector<int32_t>> windows,
                   std::function<void()> check)
    : checkpoint_(checkpoint),
      model_(load(checkpoint)),
      stream_(model_, std::move(windows), std::move(check)) {
  stream_.executor().observe(
      [this](const Input& input, const CpuExecutor::InputRows& rows) { add(input, rows); });
  if (!checkpoint_.folded()) return;
  const int64_t width = std::max(model_.config.hidden, widest(model_.config).query);
  folded_rows_ = AlignedArray<float>(static_cast<size_t>(stream_.executor().max_rows() * width));
  no_gain_.assign(static_cast<size_t>(model_.config.hidden), 1.0f);
}

std::vector<MeasuredInput> CpuMeter::run(int64_t layer) {
  const bool is_head = layer == checkpoint_.layers();
  const int place = is_head ? -1 : static_cast<int>(layer);
  for (size_t i = 0; i < checkpoint_.inputs(layer); ++i) {
    sites_.push_back({&model_.input(place, static_cast<int>(i)),
                      {InputMoments(checkpoint_.width(layer, i))},
                      checkpoint_.rotation(layer, i)});
  }
  if (is_head) {
    stream_.for_batches([&](int64_t rows) { stream_.executor().prepare_head(0, rows); });
  } else {
    stream_.run_layer();
    checkpoint_.release(layer);
  }
  std::vector<MeasuredInput> result;
  for (Site& site : sites_)
    result.push_back(std::move(site.measured));
  sites_.clear();
  return result;
}

void CpuMeter::add(const Input& input, const CpuExecutor::InputRows& rows) {
  for (Site& site : sites_) {
    if (site.input != &input) continue;
    InputMoments* moments = &site.measured.moments;
    if (rows.expert >= 0) {
      const auto expert = static_cast<size_t>(rows.expert);
      auto& experts = site.measured.experts;
      if (experts.size() <= expert) experts.resize(expert + 1);
      if (!experts[expert]) experts[expert].emplace(moments->width);
      moments = &*experts[expert];
    }
    if (!site.rotate) {
      moments->add(rows.values, rows.stride, rows.count, checkpoint_.pool());
      continue;
    }
    fold(site, rows);
    moments->add(folded_rows_.data(), moments->width, rows.count, checkpoint_.pool());
  }
}

// Inputs after a norm are computed anew from the residual stream: a gain of zero could not be
// divided out of `rows`.
void CpuMeter::fold(const Site& site, const CpuExecutor::InputRows& rows) {
  const int64_t width = site.measured.moments.width;
  checkpoint_.pool().for_each(rows.count, [&](int64_t r) {
    float* x = folded_rows_.data() + r * width;
    if (!site.input->norm.present()) {
      std::copy_n(rows.values + r * rows.stride, width, x);
    } else {
      const int64_t row = rows.of_batch == nullptr ? r : rows.of_batch[r];
      ops().rms_norm(stream_.executor().hidden(row).data(), no_gain_.data(), width,
                     site.input->norm.eps, x);
    }
    site.rotate(x);
  });
}

}  // namespace walsh
