#include "calibrate/layer_statistics.h"

#include <algorithm>

#include "arch/plan.h"
#include "kernels/ops.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

Model load(CheckpointSource& source, ThreadPool& pool) {
  LoadOptions options;
  options.pool = &pool;
  return Model::load(source, read_config(source), options);
}

}  // namespace

LayerStatistics::LayerStatistics(const std::string& folder,
                                 std::vector<std::vector<int32_t>> windows, ThreadPool& pool,
                                 std::function<void()> check, const std::optional<Rotation>& fold)
    : source_(CheckpointSource::open(folder)),
      pool_(pool),
      model_(load(source_, pool)),
      plan_(make_plan(model_.config)),
      stream_(model_, std::move(windows), std::move(check)) {
  stream_.executor().observe(
      [this](const Input& input, const CpuExecutor::InputRows& rows) { add(input, rows); });
  if (!fold) return;
  plan_ = folded_plan(std::move(plan_), folder);
  fold_ = std::make_unique<ResidualFold>(plan_, *fold, source_, pool_);
  const int64_t width = std::max(model_.config.hidden, widest(model_.config).query);
  folded_rows_ = AlignedArray<float>(static_cast<size_t>(stream_.executor().max_rows() * width));
  no_gain_.assign(static_cast<size_t>(model_.config.hidden), 1.0f);
}

const InputMoments& LayerStatistics::moments(int site) {
  const auto [layer, index] = place_of(site);
  if (layer < layer_) restart();
  while (layer_ < layer)
    advance();
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
  for (const LayerDesc& desc : model_.config.layers) {
    if (index < desc.activations.size()) return {layer, index};
    index -= desc.activations.size();
    ++layer;
  }
  if (site < 0 || index > 0) {
    throw Error(ErrorCode::internal, source_.path(),
                "nothing is measured at site " + std::to_string(site));
  }
  return {layer, 0};
}

void LayerStatistics::restart() {
  layer_ = -1;
  stream_.restart();
  measured_.clear();
}

void LayerStatistics::advance() {
  measured_.clear();  // frees its memory first
  ++layer_;
  if (layer_ < static_cast<int64_t>(model_.config.layers.size())) {
    run_layer(layer_);
  } else {
    run_head();
  }
}

void LayerStatistics::run_layer(int64_t index) {
  const LayerSteps& layer = model_.steps.layers[static_cast<size_t>(index)];
  const LayerDesc& desc = model_.config.layers[static_cast<size_t>(index)];
  for (size_t i = 0; i < desc.activations.size(); ++i) {
    const auto reader =
        std::find_if(desc.matrices.begin(), desc.matrices.end(),
                     [&](const MatrixDesc& m) { return static_cast<size_t>(m.input) == i; });
    measure(layer.inputs[i], desc.activations[i].width, reader->weight);
  }
  stream_.run_layer();
  for (const MatrixDesc& m : desc.matrices)
    source_.release(m.weight);
}

void LayerStatistics::run_head() {
  measure(model_.input(-1, 0), model_.config.hidden, plan_.head);
  stream_.for_pieces([&](int64_t rows) { stream_.executor().prepare_head(0, rows); });
}

void LayerStatistics::measure(const Input& input, int64_t width, const std::string& matrix) {
  measured_.push_back({&input, InputMoments(width), {}});
  if (fold_) measured_.back().rotate = fold_->input_rotation(matrix, width);
}

void LayerStatistics::add(const Input& input, const CpuExecutor::InputRows& rows) {
  for (Measured& measured : measured_) {
    if (measured.input != &input) continue;
    InputMoments* moments = &measured.moments;
    if (rows.expert >= 0) {
      const auto expert = static_cast<size_t>(rows.expert);
      if (measured.experts.size() <= expert) measured.experts.resize(expert + 1);
      std::optional<InputMoments>& own = measured.experts[expert];
      if (!own) own.emplace(measured.moments.width);
      moments = &*own;
    }
    if (!measured.rotate) {
      moments->add(rows.values, rows.stride, rows.count, pool_);
      continue;
    }
    fold(measured, rows);
    moments->add(folded_rows_.data(), moments->width, rows.count, pool_);
  }
}

// Only for inputs that come from the residual stream through a norm: a gain of zero could not be
// divided out of `rows`.
void LayerStatistics::fold(const Measured& measured, const CpuExecutor::InputRows& rows) {
  const int64_t width = measured.moments.width;
  pool_.for_each(rows.count, [&](int64_t r) {
    float* x = folded_rows_.data() + r * width;
    if (!measured.input->norm.present()) {
      std::copy_n(rows.values + r * rows.stride, width, x);
    } else {
      const int64_t row = rows.of_batch == nullptr ? r : rows.of_batch[r];
      ops().rms_norm(stream_.executor().hidden(row).data(), no_gain_.data(), width,
                     measured.input->norm.eps, x);
    }
    measured.rotate(x);
  });
}

}  // namespace walsh
