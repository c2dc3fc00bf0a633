#include "calibrate/layer_stream.h"

#include <algorithm>

#include "base/checked.h"
#include "calibrate/text_windows.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr const char* kWhere = "text";

AlignedArray<float> copy_of(const AlignedArray<float>& values) {
  AlignedArray<float> copy(values.size());
  std::copy_n(values.data(), values.size(), copy.data());
  return copy;
}

}  // namespace

LayerStream::LayerStream(const Model& model, std::vector<std::vector<int32_t>> windows,
                         std::function<void()> check)
    : model_(model), windows_(std::move(windows)), check_(std::move(check)) {
  check_windows(model_.config, windows_);
  uint64_t tokens = 0, longest = 0;
  for (const auto& window : windows_) {
    tokens += window.size();
    longest = std::max<uint64_t>(longest, window.size());
  }
  const auto hidden = static_cast<uint64_t>(model_.config.hidden);
  state_.stream = AlignedArray<float>(narrow<size_t>(checked_mul(tokens, hidden, kWhere), kWhere));
  SessionOptions options;
  options.max_positions = static_cast<int64_t>(longest);
  pages_ = std::make_unique<KvPages>(kv_shape(model_, options));
  const Growth window{pages_->open(), options.max_positions};
  pages_->reserve({&window, 1});
  executor_ = std::make_unique<CpuExecutor>(model_, *pages_, options.max_bytes);
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
  const std::vector<LayerDesc>& layers = model_.config.layers;
  const bool is_read = std::any_of(layers.begin(), layers.end(), [&](const LayerDesc& later) {
    return later.attention.cache_of == index;
  });
  if (is_read && index > 0)  // that of layer 0 is the embedding
    state_.kept[index] = copy_of(state_.stream);
  const auto run = [&](int64_t, int64_t) {
    for (const Step& step : model_.steps.layers[static_cast<size_t>(index)].steps)
      executor_->execute(step);
  };
  for_pieces(run, index == 0, layers[static_cast<size_t>(index)].attention.cache_of, 0);
  ++state_.next;
}

void LayerStream::for_pieces(const std::function<void(int64_t rows)>& body) {
  for_pieces([&](int64_t rows, int64_t) { body(rows); }, state_.next == 0, -1, 0);
}

void LayerStream::run_head(
    const std::function<void(int64_t token, std::span<const float> logits)>& sink) {
  const int64_t most = executor_->logit_rows();
  const auto run = [&](int64_t rows, int64_t first) {
    for (int64_t begin = 0; begin < rows; begin += most) {
      const int64_t count = std::min(most, rows - begin);
      executor_->logits(begin, count);
      model_.pool().for_each(count,
                             [&](int64_t i) { sink(first + begin + i, executor_->logit_row(i)); });
    }
  };
  for_pieces(run, state_.next == 0, -1, executor_->max_rows());
}

// The embedding also prepares what depends on the token in every layer, so it runs first.
void LayerStream::for_pieces(const std::function<void(int64_t rows, int64_t first)>& body,
                             bool first, int cache, int64_t logits) {
  const int64_t hidden = model_.config.hidden;
  float* next = state_.stream.data();
  for (const auto& window : windows_) {
    const auto size = static_cast<int64_t>(window.size());
    for (int64_t begin = 0; begin < size; begin += executor_->max_rows()) {
      const int64_t rows = std::min(executor_->max_rows(), size - begin);
      const int64_t token = (next - state_.stream.data()) / hidden;
      const Run run{0, begin, rows, std::min(logits, rows)};
      const auto tokens =
          std::span(window).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
      executor_->run_parts({tokens, {&run, 1}}, [&] {
        executor_->embed();
        if (cache >= 0) store_cache(cache, token, rows);
        if (!first) put_stream(next, rows);
        body(rows, token);
        executor_->read_rows(Rows::stream, 0, rows, next);
      });
      next += rows * hidden;
    }
    if (check_) check_();
  }
}

void LayerStream::put_stream(const float* from, int64_t rows) {
  executor_->write_rows(Rows::stream, 0, rows, from);
}

// The stream of rows from `first_token` of all tokens on becomes keys and values of a layer again.
void LayerStream::store_cache(int layer, int64_t first_token, int64_t rows) {
  if (const auto kept = state_.kept.find(layer); kept != state_.kept.end())
    put_stream(kept->second.data() + first_token * model_.config.hidden, rows);
  for (const Step& step : model_.steps.layers[static_cast<size_t>(layer)].steps) {
    executor_->execute(step);
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
