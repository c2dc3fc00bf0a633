#include "allocate/erring_model.h"

#include <algorithm>
#include <utility>

namespace walsh {

// Lets tensors err as long as this object lives, and makes them exact again at its end.
class ErringModel::Scope {
 public:
  explicit Scope(ErringWeights& weights) : weights_(weights) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    for (const size_t tensor : tensors_)
      weights_.set(tensor, 0);
  }

  void add(size_t tensor, double error) {
    tensors_.push_back(tensor);
    weights_.set(tensor, error);
  }

 private:
  ErringWeights& weights_;
  std::vector<size_t> tensors_;
};

ErringModel::ErringModel(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
                         const LoadOptions& load)
    : tensors_(tensors), weights_(tensors, stand_in, load) {
  if (model().device.cuda) runner_ = std::make_shared<LayerRunner>(model(), load.use);
}

uint64_t ErringModel::bytes(int64_t tokens) const {
  // The largest layer takes this many bytes while all of its matrices err.
  uint64_t layer_bytes = 0;
  for (int64_t layer = ErringWeights::kEmbedding; layer <= head(); ++layer) {
    uint64_t bytes = 0;
    for (const size_t t : weights_.of_layer(layer))
      bytes += tensors_[t].weights() * sizeof(float);
    layer_bytes = std::max(layer_bytes, bytes);
  }
  const auto rows = static_cast<uint64_t>(tokens);
  const auto hidden = static_cast<uint64_t>(model().config.hidden);
  const auto vocab = static_cast<uint64_t>(model().config.vocab);
  const uint64_t predictions = std::min(ReferenceText::kMaxBytes, rows * vocab * sizeof(float));
  return layer_bytes + 2 * (rows * hidden * sizeof(float) + predictions);
}

std::unique_ptr<ErringModel::Text> ErringModel::text(std::vector<std::vector<int32_t>> windows,
                                                     const std::function<void()>& check) {
  LayerStream text = stream(std::move(windows), check);
  text.run_to(head());
  ReferenceText reference(text);
  return std::make_unique<Text>(Text{std::move(text), std::move(reference)});
}

LayerStream ErringModel::stream(std::vector<std::vector<int32_t>> windows,
                                const std::function<void()>& check) const {
  if (runner_) return {runner_, std::move(windows), check};
  return {model(), std::move(windows), check};
}

// Returns whether later layers attend to the keys and values of this one.
bool ErringModel::keeps_cache(int64_t layer) const {
  const auto& layers = model().config.layers;
  return std::any_of(layers.begin(), layers.end(), [&](const LayerDesc& later) {
    return later.attention.cache_of == static_cast<int>(layer);
  });
}

// Gives every tensor of the whole model, which is on a GPU, its error.
void ErringModel::settle(std::span<const double> errors) {
  for (size_t t = 0; t < errors.size(); ++t)
    weights_.set(t, errors[t]);
  weights_.finish();
}

Estimate ErringModel::divergence(Text& text, std::span<const double> errors) {
  text.stream.restart();
  if (runner_) {
    settle(errors);
    text.stream.run_to(head());
    return text.reference.divergence(text.stream);
  }
  const auto add = [&](Scope& scope, int64_t layer) {
    for (const size_t t : weights_.of_layer(layer))
      scope.add(t, errors[t]);
  };
  Scope lasting(weights_);
  add(lasting, ErringWeights::kEmbedding);
  for (int64_t layer = 0; layer < head(); ++layer) {
    Scope passing(weights_);
    add(keeps_cache(layer) ? lasting : passing, layer);
    text.stream.run_layer();
  }
  add(lasting, head());
  return text.reference.divergence(text.stream);
}

std::vector<std::vector<double>> ErringModel::alone(
    Text& text, std::span<const double> levels,
    const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::vector<double>> result(tensors_.size());
  const auto total = static_cast<int64_t>(tensors_.size() * levels.size());
  int64_t done = 0;
  text.stream.restart();
  if (runner_) settle(std::vector<double>(tensors_.size()));
  for (int64_t layer = ErringWeights::kEmbedding; layer <= head(); ++layer) {
    if (!weights_.of_layer(layer).empty()) {
      const LayerStream::State before = text.stream.save();
      for (const size_t t : weights_.of_layer(layer)) {
        Scope scope(weights_);
        for (const double level : levels) {
          if (progress) progress(done++, total);
          scope.add(t, level);
          weights_.finish();
          text.stream.restore(before);
          text.stream.run_to(head());
          result[t].push_back(text.reference.divergence(text.stream).value);
        }
      }
      weights_.finish();
      text.stream.restore(before);
    }
    if (layer >= 0 && layer < head()) text.stream.run_layer();
  }
  return result;
}

}  // namespace walsh
