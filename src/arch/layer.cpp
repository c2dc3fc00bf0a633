#include "arch/layer.h"

#include <cmath>

namespace walsh {

std::vector<VectorDesc> layer_vectors(const LayerDesc& layer) {
  using Form = VectorDesc::Form;
  std::vector<VectorDesc> all;
  const auto gain = [&](const NormDesc& norm) {
    if (norm.present())
      all.push_back(
          {norm.weight, 1, norm.width, norm.gain_offset, Form::stored, true, norm.factor});
  };
  const auto stored = [&](const std::string& name, int64_t rows, int64_t cols, Form form) {
    if (!name.empty()) all.push_back({name, rows, cols, 0, form});
  };
  const AttentionDesc& a = layer.attention;
  const DeltaNetDesc& d = layer.delta_net;
  const ShortConvolutionDesc& c = layer.short_convolution;
  gain(layer.join.token);
  gain(layer.join.stream);
  for (const ActivationDesc& activation : layer.activations)
    gain(activation.norm);
  gain(a.q_norm);
  gain(a.k_norm);
  gain(d.norm);
  gain(layer.after_attention);
  gain(layer.experts.after_shared);
  gain(layer.experts.after);
  gain(layer.after_mlp);
  gain(layer.embedding.norm);
  gain(layer.embedding.after);
  stored(d.convolution, d.channels(), d.taps, Form::transposed);
  stored(c.convolution, c.channels, c.taps, Form::transposed);
  stored(c.bias, 1, c.channels, Form::stored);
  stored(d.rate, 1, d.value_heads, Form::exponential);
  stored(d.bias, 1, d.value_heads, Form::stored);
  stored(a.sinks, 1, a.heads, Form::stored);
  stored(layer.experts.routing.bias, 1, layer.experts.count, Form::stored);
  stored(layer.experts.routing.factors, 1, layer.experts.count, Form::stored);
  stored(layer.stream_factor, 1, 1, Form::stored);
  if (a.unit_eps != 0 || a.value_eps != 0)
    all.push_back({kUnitGain, 1, a.head_dim, 1, Form::constant});
  if (d.present()) {
    const auto dim = static_cast<float>(d.key_dim);
    all.push_back({kQueryLengthGain, 1, d.key_dim, 1 / dim, Form::constant});
    all.push_back({kKeyLengthGain, 1, d.key_dim, 1 / std::sqrt(dim), Form::constant});
  }
  return all;
}

int find_vector(const std::vector<VectorDesc>& vectors, const std::string& name) {
  for (size_t i = 0; i < vectors.size(); ++i)
    if (!name.empty() && vectors[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace walsh
