#include "allocate/erring_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/by_head.h"
#include "weights/open.h"

namespace walsh {
namespace {

Model load_quietly(WeightSource& source, LoadOptions options) {
  options.progress = {};
  return Model::load(source, read_config(source), options);
}

}  // namespace

// Matrices of the model that err as long as this object lives.
class ErringModel::Exchange {
 public:
  explicit Exchange(ErringModel& owner) : owner_(owner), model_(owner.model_) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    for (auto& [place, before] : before_)
      put(place, before);
  }

  void add(size_t tensor, double error) {
    if (!(error > 0)) return;
    for (const std::string& name : owner_.tensors_[tensor].members) {
      const Place& place = owner_.places_.at(name);
      const MatrixForm* form = form_of(place);
      const bool by_head = form != nullptr && form->by_head;
      const Tensor original = by_head ? owner_.plain_->load(name) : get(place);
      Tensor erring = owner_.stand_in_.erring(name, original, error);
      if (by_head)
        erring = decode_heads(erring, nullptr, form->heads, form->transposed, model_.pool());
      before_.emplace_back(place, get(place));
      put(place, erring);
    }
  }

 private:
  const MatrixForm* form_of(const Place& place) const {
    if (place.layer < 0 || place.layer == owner_.head()) return nullptr;
    const LayerSteps& steps = model_.steps.layers[static_cast<size_t>(place.layer)];
    return &steps.matrices[static_cast<size_t>(place.matrix)];
  }

  Linear& linear(const Place& place) const {
    if (place.layer == owner_.head()) return model_.head;
    Layer& layer = model_.layers[static_cast<size_t>(place.layer)];
    return layer.matrices[static_cast<size_t>(place.matrix)];
  }

  Tensor get(const Place& place) const {
    if (place.layer >= 0) return linear(place).dense;
    return place.of_layers ? model_.layer_embedding.stored : model_.embedding.stored;
  }

  void put(const Place& place, const Tensor& tensor) const {
    if (place.layer >= 0) {
      put(linear(place), tensor);
    } else if (place.of_layers) {
      model_.layer_embedding.stored = tensor;
    } else {
      model_.embedding.stored = tensor;
      if (model_.config.head.weight == model_.config.embedding) put(model_.head, tensor);
    }
  }

  static void put(Linear& linear, const Tensor& tensor) {
    linear.dense = tensor;
    linear.format = linear.stored = tensor.format;
  }

  ErringModel& owner_;
  Model& model_;
  std::vector<std::pair<Place, Tensor>> before_;
};

ErringModel::ErringModel(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
                         const LoadOptions& load)
    : tensors_(tensors),
      stand_in_(stand_in),
      plain_(stand_in.plain()),
      model_(load_quietly(*plain_, load)) {
  find_places();
}

void ErringModel::find_places() {
  const ModelConfig& config = model_.config;
  places_[config.layer_embedding.weight] = {kEmbedding, 0, true};
  places_[config.head.weight] = {head(), 0};
  places_[config.embedding] = {kEmbedding, 0};  // also of a head that is the same matrix
  for (int64_t l = 0; l < head(); ++l) {
    int matrix = 0;
    for (const MatrixDesc& desc : config.layers[static_cast<size_t>(l)].matrices)
      places_[desc.weight] = {l, matrix++};
  }
  for (size_t t = 0; t < tensors_.size(); ++t)
    by_layer_[places_.at(tensors_[t].members.front()).layer].push_back(t);
}

uint64_t ErringModel::bytes(int64_t tokens) const {
  uint64_t layer_bytes = 0;  // of the largest one while all of its matrices err
  for (const auto& [layer, tensors] : by_layer_) {
    uint64_t bytes = 0;
    for (const size_t t : tensors)
      bytes += tensors_[t].weights() * sizeof(float);
    layer_bytes = std::max(layer_bytes, bytes);
  }
  const auto rows = static_cast<uint64_t>(tokens);
  const auto hidden = static_cast<uint64_t>(model_.config.hidden);
  const auto vocab = static_cast<uint64_t>(model_.config.vocab);
  const uint64_t predictions = std::min(ReferenceText::kMaxBytes, rows * vocab * sizeof(float));
  return layer_bytes + 2 * (rows * hidden * sizeof(float) + predictions);
}

std::unique_ptr<ErringModel::Text> ErringModel::text(std::vector<std::vector<int32_t>> windows,
                                                     const std::function<void()>& check) {
  LayerStream stream(model_, std::move(windows), check);
  while (stream.next_layer() < head())
    stream.run_layer();
  ReferenceText reference(stream);
  return std::make_unique<Text>(Text{std::move(stream), std::move(reference)});
}

// Whether later layers make the keys and values of this one again.
bool ErringModel::keeps_cache(int64_t layer) const {
  const auto& layers = model_.config.layers;
  return std::any_of(layers.begin(), layers.end(), [&](const LayerDesc& later) {
    return later.attention.cache_of == static_cast<int>(layer);
  });
}

Estimate ErringModel::divergence(Text& text, std::span<const double> errors) {
  const auto add = [&](Exchange& exchange, int64_t layer) {
    if (const auto found = by_layer_.find(layer); found != by_layer_.end())
      for (const size_t t : found->second)
        exchange.add(t, errors[t]);
  };
  Exchange lasting(*this);
  add(lasting, kEmbedding);
  text.stream.restart();
  for (int64_t layer = 0; layer < head(); ++layer) {
    Exchange passing(*this);
    add(keeps_cache(layer) ? lasting : passing, layer);
    text.stream.run_layer();
  }
  add(lasting, head());
  return text.reference.divergence(text.stream);
}

Estimate ErringModel::run_to_end(Text& text, int64_t layer) {
  for (; layer < head(); ++layer)
    text.stream.run_layer();
  return text.reference.divergence(text.stream);
}

std::vector<std::vector<double>> ErringModel::alone(
    Text& text, std::span<const double> levels,
    const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<std::vector<double>> result(tensors_.size());
  const auto total = static_cast<int64_t>(tensors_.size() * levels.size());
  int64_t done = 0;
  text.stream.restart();
  for (int64_t layer = kEmbedding; layer <= head(); ++layer) {
    const auto found = by_layer_.find(layer);
    if (found != by_layer_.end()) {
      const LayerStream::State before = text.stream.save();
      for (const size_t t : found->second) {
        for (const double level : levels) {
          if (progress) progress(done++, total);
          Exchange exchange(*this);
          exchange.add(t, level);
          text.stream.restore(before);
          result[t].push_back(run_to_end(text, std::max<int64_t>(layer, 0)).value);
        }
      }
      text.stream.restore(before);
    }
    if (layer >= 0 && layer < head()) text.stream.run_layer();
  }
  return result;
}

}  // namespace walsh
