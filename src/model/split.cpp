#include "model/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/model.h"

namespace walsh {
namespace {

// Drops the norms of activations that no matrix of the part reads, so that they are not loaded.
void drop_unread_norms(LayerDesc& layer) {
  std::set<int> read;
  for (const MatrixDesc& m : layer.matrices)
    read.insert(m.input);
  for (size_t i = 0; i < layer.activations.size(); ++i)
    if (!read.contains(static_cast<int>(i))) layer.activations[i].norm = {};
}

// Keeps the matrices that `keeps` selects, in order, and updates the indices that refer to them.
void keep_matrices(LayerDesc& layer, FunctionRef<bool(int matrix)> keeps) {
  std::vector<MatrixDesc> kept;
  std::vector<int> places;
  for (size_t i = 0; i < layer.matrices.size(); ++i) {
    const bool stays = keeps(static_cast<int>(i));
    places.push_back(stays ? static_cast<int>(kept.size()) : -1);
    if (stays) kept.push_back(std::move(layer.matrices[i]));
  }
  layer.matrices = std::move(kept);
  AttentionDesc& a = layer.attention;
  LatentDesc& l = a.latent;
  DeltaNetDesc& d = layer.delta_net;
  ShortConvolutionDesc& c = layer.short_convolution;
  ExpertsDesc& e = layer.experts;
  MlpDesc& mlp = layer.mlp;
  for (int* matrix : {&a.q,          &a.k,      &a.v,     &a.o,     &l.query_down, &l.down,
                      &l.shared_key, &d.qkv,    &d.z,     &d.b,     &d.a,          &d.o,
                      &c.before,     &c.after,  &c.inner, &c.o,     &e.router,     &e.shared_gate,
                      &e.first,      &mlp.gate, &mlp.up,  &mlp.down})
    if (*matrix >= 0) *matrix = places[static_cast<size_t>(*matrix)];
}

// Returns the layer of the CPU's part: the router, the gate of the shared expert, and the experts.
// The other part computes the output of the shared expert.
LayerDesc experts_of(const LayerDesc& whole) {
  const ExpertsDesc& e = whole.experts;
  LayerDesc layer = whole;
  keep_matrices(layer, [&](int matrix) {
    return matrix == e.router || matrix == e.shared_gate || whole.matrix(matrix).expert >= 0;
  });
  layer.delta_net = {};
  layer.short_convolution = {};
  layer.attention = {};
  layer.after_attention = {};
  drop_unread_norms(layer);
  return layer;
}

// Returns the layer of the GPU's part: the mixer and the shared expert.
LayerDesc without_experts(const LayerDesc& whole) {
  const ExpertsDesc& e = whole.experts;
  LayerDesc layer = whole;
  keep_matrices(layer, [&](int matrix) {
    return matrix != e.router && matrix != e.shared_gate && whole.matrix(matrix).expert < 0;
  });
  layer.experts = {};
  layer.experts.chosen = e.chosen;
  layer.after_mlp = {};
  drop_unread_norms(layer);
  return layer;
}

// Returns the smallest number from 1 to `most` for which `fits` is true; none if there is none.
// `fits` has to be true for all larger numbers, too.
std::optional<int64_t> fewest(int64_t most, FunctionRef<bool(int64_t count)> fits) {
  if (most < 1 || !fits(most)) return std::nullopt;
  int64_t low = 1, high = most;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

}  // namespace

bool has_mixer(const LayerDesc& layer) {
  return layer.attention.present() || layer.has_state();
}

bool has_experts(const ModelConfig& config) {
  return std::any_of(config.layers.begin(), config.layers.end(),
                     [](const LayerDesc& layer) { return layer.experts.present(); });
}

std::string why_not(const ModelConfig& config, const LayerSplit& split) {
  if (config.layer_embedding.present()) return "a model with embeddings of layers";
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const LayerDesc& layer = config.layers[i];
    const AttentionDesc& attention = layer.attention;
    if (attention.cache_of >= 0 && index >= split.cpu_layers &&
        attention.cache_of < split.cpu_layers) {
      return "layers that share keys and values";
    }
    if (layer.experts.apart() && index >= split.cpu_layers && index < split.cpu_experts)
      return "layers whose experts have norms of their own";
  }
  return "";
}

ModelParts split_config(const ModelConfig& config, const LayerSplit& split) {
  if (const std::string why = why_not(config, split); !why.empty()) {
    throw Error(ErrorCode::usage, config.family,
                fmt::format("{} cannot be on two devices: use all layers of one", why));
  }
  ModelParts parts{config, config};
  parts.first.head = {};
  parts.first.head_input = {};
  parts.second.embedding.clear();
  parts.first.tied_head = parts.second.tied_head = false;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const LayerDesc& whole = config.layers[i];
    if (index < split.cpu_layers) {
      parts.second.layers[i] = {};
    } else if (index < split.cpu_experts && whole.experts.present()) {
      parts.first.layers[i] = experts_of(whole);
      parts.second.layers[i] = without_experts(whole);
    } else {
      parts.first.layers[i] = {};
    }
  }
  return parts;
}

LayerSplit wanted_split(const ModelConfig& config, int64_t gpu_layers, int64_t cpu_experts) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  const int64_t experts = cpu_experts == kPlanned ? 0 : cpu_experts;
  return {layers - std::min(gpu_layers, layers), std::min(experts, layers)};
}

std::optional<LayerSplit> choose_split(const ModelConfig& config, int64_t cpu_experts,
                                       FunctionRef<bool(const LayerSplit& split)> fits) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  LayerSplit split = wanted_split(config, layers, cpu_experts);
  if (fits(split)) return split;
  if (cpu_experts == kPlanned && has_experts(config)) {
    split.cpu_experts = layers;
    const auto without = fewest(layers, [&](int64_t count) { return fits({0, count}); });
    if (without) return LayerSplit{0, *without};
  }
  const auto less = fewest(layers - 1, [&](int64_t count) {
    return fits({count, split.cpu_experts});
  });
  if (!less) return std::nullopt;
  split.cpu_layers = *less;
  return split;
}

std::string split_text(const ModelConfig& config, const LayerSplit& split, const Device& gpu) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  std::string text = split.cpu_layers == 0
                         ? fmt::format("{} has all {} layers", gpu.name(), layers)
                         : fmt::format("{} has the last {} of {} layers", gpu.name(),
                                       layers - split.cpu_layers, layers);
  int64_t without = 0;
  for (int64_t i = split.cpu_layers; i < split.cpu_experts; ++i)
    without += config.layers[static_cast<size_t>(i)].experts.present() ? 1 : 0;
  if (without > 0) text += fmt::format(" without the experts of {} of them", without);
  return text + ", the CPU the rest";
}

}  // namespace walsh
