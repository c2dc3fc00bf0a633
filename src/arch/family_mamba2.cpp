// Helps families with Mamba-2 mixers (Dao and Gu 2024) to read their shapes, limits and names.
#include <fmt/format.h>

#include "arch/family.h"

namespace walsh {
namespace {

constexpr int64_t kMaxHeads = 4096, kMaxDim = 256, kDimUnit = 16, kMaxTaps = 16;

}  // namespace

void set_mamba2_names(const std::string& prefix, TensorNames& names) {
  names.delta_in = prefix + "in_proj";
  names.delta_qkv = prefix + "in_proj_channels";
  names.delta_z = prefix + "in_proj_gate";
  names.delta_b = prefix + "in_proj_step";
  names.delta_o = prefix + "out_proj";
  names.delta_norm = prefix + "norm";
  names.vectors = {{LayerVector::taps, prefix + "conv1d.weight"},
                   {LayerVector::taps_bias, prefix + "conv1d.bias"},
                   {LayerVector::decay_rate, prefix + "A_log"},
                   {LayerVector::decay_bias, prefix + "dt_bias"},
                   {LayerVector::skip, prefix + "D"}};
}

bool is_mamba2(std::string_view kind) {
  return kind == "mamba" || kind == "linear_attention";
}

bool is_attention(std::string_view kind) {
  return kind == "attention" || kind == "full_attention";
}

void read_mamba2(ConfigReader& reader, const Mamba2Keys& keys, const Mamba2Shape& defaults,
                 DecoderTraits& traits) {
  DeltaNetTraits& d = traits.delta_net;
  d.additive = true;
  d.value_heads = reader.integer_or(keys.heads, defaults.heads, 1, kMaxHeads);
  const Json* dim = reader.value(keys.head_dim);
  d.value_dim = dim == nullptr || *dim == "auto" ? defaults.head_dim
                                                 : reader.integer(keys.head_dim, 1, kMaxDim);
  d.key_heads = reader.integer_or(keys.groups, defaults.groups, 1, kMaxHeads);
  d.key_dim = reader.integer_or(keys.state, defaults.state, 1, kMaxDim);
  d.taps = reader.integer_or(keys.taps, 4, 2, kMaxTaps);
  if (!reader.boolean_or(keys.convolution_bias, true))
    traits.names.vectors.erase(LayerVector::taps_bias);
  d.bias = reader.boolean_or(keys.bias, false);
  if (d.value_heads % d.key_heads != 0)
    reader.refuse(keys.heads,
                  fmt::format("expected a multiple of {} {}", keys.groups, d.key_heads));
  for (const auto& [key, size] : {std::pair(keys.head_dim, d.value_dim), {keys.state, d.key_dim}})
    if (size < 1 || size % kDimUnit != 0 || size > kMaxDim)
      reader.refuse(key, fmt::format("expected a multiple of {} to {}", kDimUnit, kMaxDim));
  // These set initial weights, or how other programs divide their work.
  for (const char* key : {"time_step_max", "time_step_floor", "mamba_chunk_size", "chunk_size",
                          "mamba_ssm_cache_dtype", "use_mamba_kernels"})
    reader.value(key);
}

}  // namespace walsh
