#include "calibrate/layer_statistics.h"

#include <fmt/format.h>

#include <algorithm>

#include "arch/plan.h"
#include "base/checked.h"
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
      windows_(std::move(windows)),
      pool_(pool),
      check_(std::move(check)),
      model_(load(source_, pool)),
      plan_(make_plan(model_.config)) {
  check_tokens();
  uint64_t tokens = 0, longest = 0;
  for (const auto& window : windows_) {
    tokens += window.size();
    longest = std::max<uint64_t>(longest, window.size());
  }
  const auto hidden = static_cast<uint64_t>(model_.config.hidden);
  hidden_ = AlignedArray<float>(
      narrow<size_t>(checked_mul(tokens, hidden, "calibration text"), "calibration text"));
  SessionOptions options;
  options.max_positions = static_cast<int64_t>(longest);
  pages_ = std::make_unique<KvPages>(kv_shape(model_, options));
  const Growth window{pages_->open(), options.max_positions};
  pages_->reserve({&window, 1});
  executor_ = std::make_unique<CpuExecutor>(model_, *pages_, options.max_bytes);
  executor_->observe(
      [this](const Input& input, const CpuExecutor::InputRows& rows) { add(input, rows); });
  if (!fold) return;
  plan_ = folded_plan(std::move(plan_), folder);
  fold_ = std::make_unique<ResidualFold>(plan_, *fold, source_, pool_);
  const int64_t width = std::max(model_.config.hidden, widest(model_.config).query);
  folded_rows_ = AlignedArray<float>(static_cast<size_t>(executor_->max_rows() * width));
  no_gain_.assign(static_cast<size_t>(hidden), 1.0f);
}

void LayerStatistics::check_tokens() const {
  int64_t longest = 0;
  for (const auto& window : windows_) {
    longest = std::max(longest, static_cast<int64_t>(window.size()));
    for (const int32_t token : window) {
      if (token >= 0 && token < model_.config.vocab) continue;
      throw Error(
          ErrorCode::usage, "calibration text",
          fmt::format("token {} is outside the vocabulary of {}", token, model_.config.vocab));
    }
  }
  if (longest == 0) throw Error(ErrorCode::usage, "calibration text", "it has no token");
  if (longest > model_.config.max_positions) {
    throw Error(ErrorCode::usage, "calibration text",
                fmt::format("windows of {} tokens, the model has {} positions", longest,
                            model_.config.max_positions));
  }
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
  kept_.clear();
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
  const bool is_read = std::any_of(
      model_.config.layers.begin(), model_.config.layers.end(),
      [&](const LayerDesc& later) { return later.attention.cache_of == static_cast<int>(index); });
  if (is_read && index > 0) {  // that of layer 0 is the embedding
    AlignedArray<float>& kept = kept_[static_cast<int>(index)];
    kept = AlignedArray<float>(hidden_.size());
    std::copy_n(hidden_.data(), hidden_.size(), kept.data());
  }
  for_pieces(
      [&](int64_t) {
        for (const Step& step : layer.steps)
          executor_->execute(step);
      },
      index == 0, desc.attention.cache_of);
  for (const MatrixDesc& m : desc.matrices)
    source_.release(m.weight);
}

void LayerStatistics::run_head() {
  measure(model_.input(-1, 0), model_.config.hidden, plan_.head);
  for_pieces([&](int64_t rows) { executor_->prepare_head(0, rows); }, false);
}

// The embedding also prepares the positions' angles, so it runs first for every layer.
void LayerStatistics::for_pieces(const std::function<void(int64_t rows)>& steps, bool first,
                                 int cache) {
  const int64_t hidden = model_.config.hidden;
  float* next = hidden_.data();
  for (const auto& window : windows_) {
    const auto size = static_cast<int64_t>(window.size());
    for (int64_t begin = 0; begin < size; begin += executor_->max_rows()) {
      const int64_t rows = std::min(executor_->max_rows(), size - begin);
      const Run run{0, begin, rows};
      const auto tokens =
          std::span(window).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
      executor_->run_parts({tokens, {&run, 1}}, [&] {
        executor_->embed();
        if (cache >= 0) store_cache(cache, (next - hidden_.data()) / hidden, rows);
        if (!first) put_stream(next, rows);
        steps(rows);
        for (int64_t r = 0; r < rows; ++r) {
          const std::span<float> x = executor_->hidden(r);
          std::copy_n(x.begin(), x.size(), next + r * hidden);
        }
      });
      next += rows * hidden;
    }
    if (check_) check_();
  }
}

void LayerStatistics::put_stream(const float* from, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const std::span<float> x = executor_->hidden(r);
    std::copy_n(from + r * model_.config.hidden, x.size(), x.begin());
  }
}

// The stream of rows from `first_token` of all tokens on becomes keys and values of a layer again.
void LayerStatistics::store_cache(int layer, int64_t first_token, int64_t rows) {
  if (const auto kept = kept_.find(layer); kept != kept_.end())
    put_stream(kept->second.data() + first_token * model_.config.hidden, rows);
  for (const Step& step : model_.steps.layers[static_cast<size_t>(layer)].steps) {
    executor_->execute(step);
    if (std::holds_alternative<step::PrepareHeads>(step.op)) return;
  }
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
      ops().rms_norm(executor_->hidden(row).data(), no_gain_.data(), width,
                     measured.input->norm.eps, x);
    }
    measured.rotate(x);
  });
}

}  // namespace walsh
