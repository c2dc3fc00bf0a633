#include "calibrate/layer_stream.h"

#include <algorithm>

#include "base/checked.h"
#include "calibrate/text_windows.h"
#include "model/cuda/cuda_model.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kWhere = "text";

SessionOptions session_of(const Model& model, const std::vector<std::vector<int32_t>>& windows) {
  check_windows(model.config, windows);
  return session_for(windows, model.device);
}

AlignedArray<float> copy_of(const AlignedArray<float>& values) {
  AlignedArray<float> copy(values.size());
  std::copy_n(values.data(), values.size(), copy.data());
  return copy;
}

}  // namespace

LayerRunner::LayerRunner(const Model& model, const SessionOptions& session)
    : model_(model), session_(session) {
  pages_ = std::make_unique<KvPages>(kv_shape(model_, session_));
  for (int64_t i = 0; i < session_.sequences; ++i) {
    const Growth window{pages_->open(), session_.max_positions};
    pages_->reserve({&window, 1});
  }
  if (model_.device.cuda) {
    executor_ = make_cuda_executor(model_, *pages_, 0);
    return;
  }
  auto executor = std::make_unique<CpuExecutor>(model_, *pages_, session_.max_bytes);
  on_cpu_ = executor.get();
  executor_ = std::move(executor);
}

LayerStream::LayerStream(const Model& model, std::vector<std::vector<int32_t>> windows,
                         std::function<void()> check)
    : LayerStream(std::make_shared<LayerRunner>(model, session_of(model, windows)), windows,
                  std::move(check)) {}

LayerStream::LayerStream(std::shared_ptr<LayerRunner> runner,
                         std::vector<std::vector<int32_t>> windows, std::function<void()> check)
    : runner_(std::move(runner)), windows_(std::move(windows)), check_(std::move(check)) {
  ModelConfig limited = runner_->model().config;
  limited.max_positions = std::min(limited.max_positions, runner_->positions());
  check_windows(limited, windows_);
  uint64_t tokens = 0;
  for (const auto& window : windows_)
    tokens += window.size();
  const auto hidden = static_cast<uint64_t>(limited.hidden);
  state_.stream = AlignedArray<float>(narrow<size_t>(checked_mul(tokens, hidden, kWhere), kWhere));
}

uint64_t LayerStream::bytes() const {
  return state_.stream.size() * sizeof(float) * (1 + state_.kept.size());
}

void LayerStream::restart() {
  state_.next = 0;
  state_.kept.clear();
}

void LayerStream::run_layer() {
  const auto index = static_cast<int>(state_.next);
  const std::vector<LayerDesc>& layers = runner_->model().config.layers;
  const bool is_read = std::any_of(layers.begin(), layers.end(), [&](const LayerDesc& later) {
    return later.attention.cache_of == index;
  });
  if (is_read && index > 0)  // the input of layer 0 is the embedding
    state_.kept[index] = copy_of(state_.stream);
  const auto run = [&](int64_t, int64_t) { runner_->executor().run_layers(index, index + 1); };
  for_batches(run, index == 0, layers[static_cast<size_t>(index)].attention.cache_of);
  ++state_.next;
}

void LayerStream::run_to(int64_t layer) {
  if (!runner_->model().device.cuda) {
    while (state_.next < layer)
      run_layer();
    return;
  }
  if (state_.next >= layer) return;
  for_batches([&](int64_t, int64_t) { runner_->executor().run_layers(state_.next, layer); },
              state_.next == 0, -1);
  state_.next = layer;
}

void LayerStream::for_batches(const std::function<void(int64_t rows)>& body) {
  for_batches([&](int64_t rows, int64_t) { body(rows); }, state_.next == 0, -1);
}

void LayerStream::run_head(
    const std::function<void(int64_t token, std::span<const float> logits)>& sink) {
  PartExecutor& executor = runner_->executor();
  const int64_t most = executor.logit_rows();
  const auto run = [&](int64_t rows, int64_t first) {
    for (int64_t begin = 0; begin < rows; begin += most) {
      const int64_t count = std::min(most, rows - begin);
      executor.logits(begin, count);
      executor.logit_row(0);  // this brings all of them to the host
      runner_->model().pool().for_each(
          count, [&](int64_t i) { sink(first + begin + i, executor.logit_row(i)); });
    }
  };
  for_batches(run, state_.next == 0, -1);
}

// Calls body for all batches. The embedding runs first, because it also prepares the values of
// every layer that depend on the token.
void LayerStream::for_batches(const std::function<void(int64_t rows, int64_t first)>& body,
                              bool first, int cache) {
  const int64_t hidden = runner_->model().config.hidden;
  PartExecutor& executor = runner_->executor();
  int64_t token = 0;
  walsh::for_batches(windows_, runner_->sequences(), executor.max_rows(), [&](const Batch& batch) {
    const auto rows = static_cast<int64_t>(batch.tokens.size());
    float* const stream = state_.stream.data() + token * hidden;
    executor.run_parts(batch, [&] {
      executor.embed();
      if (cache >= 0) store_cache(cache, token, rows);
      if (!first) put_stream(stream, rows);
      body(rows, token);
      executor.read_rows(Rows::stream, 0, rows, stream);
    });
    token += rows;
    if (check_) check_();
  });
}

void LayerStream::put_stream(const float* from, int64_t rows) {
  runner_->executor().write_rows(Rows::stream, 0, rows, from);
}

// Stores the keys and values of a layer again, from its kept input of the rows that begin at
// `first_token` of all tokens.
void LayerStream::store_cache(int layer, int64_t first_token, int64_t rows) {
  if (const auto kept = state_.kept.find(layer); kept != state_.kept.end())
    put_stream(kept->second.data() + first_token * runner_->model().config.hidden, rows);
  for (const Step& step : runner_->model().steps.layers[static_cast<size_t>(layer)].steps) {
    runner_->on_cpu().execute(step);
    if (std::holds_alternative<step::PrepareHeads>(step.op)) return;
  }
}

LayerStream::State LayerStream::save() const {
  State state;
  state.next = state_.next;
  state.stream = copy_of(state_.stream);
  for (const auto& [layer, stream] : state_.kept)
    state.kept[layer] = copy_of(stream);
  return state;
}

void LayerStream::restore(const State& state) {
  state_.next = state.next;
  std::copy_n(state.stream.data(), state.stream.size(), state_.stream.data());
  std::erase_if(state_.kept, [&](const auto& kept) { return !state.kept.contains(kept.first); });
}

}  // namespace walsh
