#include "arch/layer.h"

#include <cmath>
#include <utility>

namespace walsh {

std::vector<VectorDesc> layer_vectors(const LayerDesc& layer) {
  std::vector<VectorDesc> all;
  const auto gain = [&](const NormDesc& norm) {
    if (norm.present())
      all.push_back({norm.weight, 1, norm.width, norm.gain_offset, VectorDesc::Form::stored, true,
                     norm.factor});
  };
  const auto constant = [&](const char* name, int64_t size, float value) {
    all.push_back({name, 1, size, value, VectorDesc::Form::constant});
  };
  const AttentionDesc& a = layer.attention;
  const DeltaNetDesc& d = layer.delta_net;
  gain(layer.join.token);
  gain(layer.join.stream);
  for (const ActivationDesc& activation : layer.activations)
    gain(activation.norm);
  gain(a.q_norm);
  gain(a.k_norm);
  if (d.additive) {
    all.push_back({d.norm.weight, 1, d.value_width(), 0, VectorDesc::Form::stored, true});
  } else {
    gain(d.norm);
  }
  gain(layer.after_attention);
  gain(layer.experts.after_shared);
  gain(layer.experts.after);
  gain(layer.after_mlp);
  gain(layer.embedding.norm);
  gain(layer.embedding.after);
  for (const auto& [vector, name] : layer.vectors) {
    VectorDesc desc = describe_vector(vector, layer);
    desc.name = name;
    if (desc.size() > 0) all.push_back(std::move(desc));
  }
  if (a.unit_eps != 0 || a.value_eps != 0) constant(kUnitGain, a.head_dim, 1);
  if (d.present() && !d.additive) {
    const auto dim = static_cast<float>(d.key_dim);
    constant(kQueryLengthGain, d.key_dim, 1 / dim);
    constant(kKeyLengthGain, d.key_dim, 1 / std::sqrt(dim));
  }
  return all;
}

int find_vector(const std::vector<VectorDesc>& vectors, const std::string& name) {
  for (size_t i = 0; i < vectors.size(); ++i)
    if (!name.empty() && vectors[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace walsh
