#include "allocate/erring_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/aligned.h"
#include "base/half.h"
#include "model/by_head.h"
#include "walsh/error.h"
#include "weights/open.h"

namespace walsh {
namespace {

// Returns a plain matrix in another type.
Tensor converted(const Tensor& from, const Format& format, ThreadPool& pool) {
  if (from.format == &format) return from;
  const auto size = static_cast<uint64_t>(dtype_size(format.dtype));
  auto memory =
      std::make_shared<AlignedArray<std::byte>>(static_cast<size_t>(from.rows * from.cols) * size);
  pool.for_ranges(from.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(from.cols));
    for (int64_t r = begin; r < end; ++r) {
      std::byte* const to = memory->data() + static_cast<uint64_t>(r * from.cols) * size;
      if (format.dtype == DType::f32) {
        decode_rows(from, r, r + 1, reinterpret_cast<float*>(to));
        continue;
      }
      decode_rows(from, r, r + 1, row.data());
      const bool brain = format.dtype == DType::bf16;
      for (size_t c = 0; c < row.size(); ++c)
        reinterpret_cast<uint16_t*>(to)[c] = brain ? f32_to_bf16(row[c]) : f32_to_f16(row[c]);
    }
  });
  Tensor result;
  result.format = &format;
  result.rows = from.rows;
  result.cols = from.cols;
  result.data = {memory->data(), memory->size()};
  result.owner = memory;
  return result;
}

void refuse_on_gpu(const ModelConfig& config, const Device& device) {
  for (const LayerDesc& layer : config.layers)
    if (layer.attention.cache_of >= 0)
      throw Error(ErrorCode::usage, device.name(),
                  "layers that share keys and values are not there");
}

}  // namespace

ErringWeights::ErringWeights(const std::vector<CandidateTensor>& tensors, StandIn& stand_in,
                             const LoadOptions& load)
    : tensors_(tensors),
      stand_in_(stand_in),
      plain_(stand_in.plain()),
      model_(std::make_unique<Model>(load_model(load))),
      placement_(make_placement(model_->device)),
      errors_(tensors.size()) {
  find_places();
  if (model_->device.cuda) return;
  for (const CandidateTensor& tensor : tensors_)
    for (const std::string& name : tensor.members)
      exact_[name] = in_memory(places_.at(name));
}

Model ErringWeights::load_model(LoadOptions load) {
  load.progress = {};
  for (const bool wide : {true, false}) {
    if (!load.device.cuda) break;
    try {
      const auto source = stand_in_.plain(wide);
      const ModelConfig config = read_config(*source);
      refuse_on_gpu(config, load.device);
      Model model = Model::load(*source, config, load);
      note_.clear();
      return model;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::usage && e.code() != ErrorCode::limit) throw;
      note_ = fmt::format("{} cannot measure for the allocation, so the CPU does: {}",
                          load.device.name(), e.what());
    }
  }
  load.device = {};
  return Model::load(*plain_, read_config(*plain_), load);
}

void ErringWeights::find_places() {
  const ModelConfig& config = model_->config;
  places_[config.layer_embedding.weight] = {kEmbedding, 0, true};
  places_[config.head.weight] = {head(), 0};
  places_[config.embedding] = {kEmbedding, 0};  // a head that is the same matrix is found here too
  for (int64_t l = 0; l < head(); ++l) {
    int matrix = 0;
    for (const MatrixDesc& desc : config.layers[static_cast<size_t>(l)].matrices)
      places_[desc.weight] = {l, matrix++};
  }
  for (size_t t = 0; t < tensors_.size(); ++t)
    by_layer_[places_.at(tensors_[t].members.front()).layer].push_back(t);
}

const std::vector<size_t>& ErringWeights::of_layer(int64_t layer) const {
  static const std::vector<size_t> none;
  const auto found = by_layer_.find(layer);
  return found == by_layer_.end() ? none : found->second;
}

void ErringWeights::set(size_t tensor, double error) {
  if (errors_[tensor] == error) return;
  for (const std::string& name : tensors_[tensor].members) {
    const Place& place = places_.at(name);
    put(place, matrix(name, place, error));
  }
  errors_[tensor] = error;
}

const MatrixForm* ErringWeights::form_of(const Place& place) const {
  if (place.layer < 0 || place.layer == head()) return nullptr;
  const LayerSteps& steps = model_->steps.layers[static_cast<size_t>(place.layer)];
  return &steps.matrices[static_cast<size_t>(place.matrix)];
}

Linear& ErringWeights::linear(const Place& place) {
  if (place.layer == head()) return model_->head;
  Layer& layer = model_->layers[static_cast<size_t>(place.layer)];
  return layer.matrices[static_cast<size_t>(place.matrix)];
}

TokenTable& ErringWeights::table(const Place& place) {
  return place.of_layers ? model_->layer_embedding : model_->embedding;
}

Tensor ErringWeights::in_memory(const Place& place) {
  return place.layer >= 0 ? linear(place).dense : table(place).stored;
}

// Returns the matrix as the model has it in memory. It is stored by heads where the model needs
// that, and is exact if `error` is 0.
Tensor ErringWeights::matrix(const std::string& name, const Place& place, double error) {
  const MatrixForm* form = form_of(place);
  const bool by_head = form != nullptr && form->by_head;
  const bool on_gpu = model_->device.cuda;
  if (!on_gpu && !(error > 0)) return exact_.at(name);
  Tensor matrix = on_gpu || by_head ? plain_->load(name) : exact_.at(name);
  if (error > 0) matrix = stand_in_.erring(name, matrix, error);
  if (by_head)
    matrix = decode_heads(matrix, nullptr, form->heads, form->transposed, model_->pool());
  return matrix;
}

void ErringWeights::put(const Place& place, const Tensor& tensor) {
  const bool is_table = place.layer < 0;
  if (model_->device.cuda) {
    const Format& format = is_table ? *table(place).stored.format : *linear(place).format;
    const Tensor values = converted(tensor, format, model_->pool());
    const auto& weights = is_table ? table(place).device_weights : linear(place).device_weights;
    placement_->overwrite(*weights, values);
    return;
  }
  if (!is_table) return put(linear(place), tensor);
  table(place).stored = tensor;
  const bool tied = model_->config.head.weight == model_->config.embedding;
  if (tied && !place.of_layers) put(model_->head, tensor);
}

void ErringWeights::put(Linear& linear, const Tensor& tensor) {
  linear.dense = tensor;
  linear.format = linear.stored = tensor.format;
}

}  // namespace walsh
