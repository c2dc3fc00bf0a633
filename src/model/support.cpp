#include "model/support.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/codec.h"

namespace walsh {
namespace {

bool is_scalar_up_to(const Format& format, int bits) {
  if (format.kind != CodeKind::scalar) return false;
  for (int pass = 0; pass < format.passes; ++pass)
    if (format.code[pass].bits > bits) return false;
  return true;
}

// Of a matrix that is rotated.
std::string why_not_weight_side(const StoredForm& form) {
  const Format& format = *form.format;
  if (!is_scalar_up_to(format, kMostWeightSideBits)) {
    return fmt::format(
        "--rotate weights has no kernels for {}: leave it out, or use codes of up to "
        "{} bits",
        format.name, kMostWeightSideBits);
  }
  for (int pass = 0; pass < format.passes; ++pass) {
    const int block = form.rotation[pass].block;
    if (block <= kMostWeightSideBlock) continue;
    return fmt::format(
        "--rotate weights takes rotation blocks of up to {}, {} has {}: leave it out",
        kMostWeightSideBlock, format.name, block);
  }
  return {};
}

int planes_of(const Format& format, ActivationMode mode) {
  switch (mode) {
    case ActivationMode::automatic:
    case ActivationMode::lut:
      return format.activation_planes;
    case ActivationMode::i8:
      return 1;
    case ActivationMode::i8x2:
      return 2;
    case ActivationMode::f16:
    case ActivationMode::f32:
      break;
  }
  return 0;
}

}  // namespace

bool is_rotated(const StoredForm& form) {
  for (int pass = 0; pass < form.format->passes; ++pass)
    if (form.rotation[pass].kind != RotationKind::none) return true;
  return false;
}

std::string why_not(const LoadOptions& options) {
  const ActivationMode mode = options.activations;
  if (!options.device.cuda) {
    if (options.rotate_weights)
      return "--rotate weights works only on a GPU: leave it out, or use --device cuda";
    if (mode == ActivationMode::f16)
      return "f16 activations work only on a GPU: use auto, i8, i8x2, f32 or lut";
    return {};
  }
  if (mode == ActivationMode::f32 || mode == ActivationMode::lut)
    return "f32 and lut activations work only on the CPU: use auto, i8, i8x2 or f16";
  if (options.rotate_weights && mode != ActivationMode::automatic) {
    return "with --rotate weights activations are float32, and bf16 from nine rows on: leave out "
           "--activations";
  }
  return {};
}

std::string why_not(const StoredForm& form, const LoadOptions& options) {
  std::string reason = why_not(options.device, *form.format);
  if (!reason.empty() || !options.device.cuda || form.format->dense) return reason;
  if (form.output.kind != RotationKind::none)
    return "rotated outputs (--rotate both) work only on the CPU: use --device cpu";
  reason = why_not_embedding(form, options.device);
  if (!reason.empty() || !options.rotate_weights || !is_rotated(form)) return reason;
  return why_not_weight_side(form);
}

std::string why_not_embedding(const StoredForm& form, const Device& device) {
  const std::string reason = why_not(device, *form.format);
  if (!reason.empty() || !device.cuda) return reason;
  for (int pass = 0; pass < form.format->passes; ++pass) {
    if (form.rotation[pass].kind == RotationKind::qr)
      return "rotation qr works only on the CPU: use --device cpu";
  }
  return {};
}

namespace {

// What a GPU has one of where a model could have several, and what it does in another order.
std::string why_not_heads(const ModelConfig& config, const AttentionDesc& a) {
  if (a.head_dim > kMostGpuHeadDim)
    return fmt::format("heads of more than {} values", kMostGpuHeadDim);
  if (a.head_dim % kGpuHeadUnit != 0)
    return fmt::format("heads of {} values, which are no multiple of {},", a.head_dim,
                       kGpuHeadUnit);
  if (a.unit_eps != 0) {
    // Their length is taken before they turn, which only keeps it without a magnitude.
    const bool turned = a.rope >= 0;
    const RopeConfig rope = turned ? config.ropes[static_cast<size_t>(a.rope)] : RopeConfig();
    if (turned && rope_table(rope, a.head_dim, config.max_positions).magnitude != 1)
      return "queries and keys of unit length whose rope has a magnitude";
    if (a.q_norm.present()) return "queries and keys of unit length with norms";
  }
  if (a.growth == 0) return {};
  if (a.rope >= 0 && config.ropes[static_cast<size_t>(a.rope)].query_beta != 0)
    return "queries that grow twice";
  const bool same =
      std::all_of(config.layers.begin(), config.layers.end(), [&](const LayerDesc& l) {
        const AttentionDesc& other = l.attention;
        return other.growth == 0 ||
               (other.growth == a.growth && other.growth_step == a.growth_step);
      });
  return same ? "" : "queries that grow differently from layer to layer";
}

}  // namespace

std::string why_not(const ModelConfig& config, const Device& device) {
  if (!device.cuda) return {};
  for (const LayerDesc& layer : config.layers) {
    if (const std::string reason = why_not_heads(config, layer.attention); !reason.empty())
      return reason + " work only on the CPU: use --device cpu";
    const DeltaNetDesc& d = layer.delta_net;
    if (layer.experts.count > kMostGpuExperts)
      return fmt::format("layers with more than {} experts work only on the CPU: use --device cpu",
                         kMostGpuExperts);
    if (layer.mlp.function == GateFunction::clamped_silu && layer.mlp.width > 0)
      return "clamped gates outside experts work only on the CPU: use --device cpu";
    if (std::max(d.key_dim, d.value_dim) > kMostGpuDeltaDim)
      return fmt::format(
          "recurrent heads of more than {} values work only on the CPU: use "
          "--device cpu",
          kMostGpuDeltaDim);
  }
  return {};
}

namespace {

// A GPU finds the matrices of a layer's experts by their number, so that all are stored alike.
void refuse_experts(const WeightSource& source, const ModelConfig& config,
                    const LoadOptions& options) {
  if (!options.device.cuda) return;
  const auto refuse = [](const std::string& where, const std::string& reason) {
    throw Error(ErrorCode::usage, where, reason);
  };
  for (const LayerDesc& layer : config.layers) {
    const ExpertsDesc& e = layer.experts;
    if (!e.present()) continue;
    if (options.rotate_weights)
      refuse(source.path(), "--rotate weights has no kernels for experts: leave it out");
    if (options.activations == ActivationMode::f16)
      refuse(source.path(),
             "f16 activations do not work with experts: use auto, i8 "
             "or i8x2");
    for (const MatrixDesc& m : layer.matrices) {
      if (m.expert <= 0) continue;
      const int own = static_cast<int>(&m - layer.matrices.data());
      const std::string& first = layer.matrix(e.first + (own - e.first) % 3).weight;
      if (!source.contains(m.weight) || !source.contains(first)) continue;
      const StoredForm form = source.form_of(m.weight), wanted = source.form_of(first);
      const bool same = form.format == wanted.format && form.rotation[0] == wanted.rotation[0] &&
                        form.rotation[1] == wanted.rotation[1];
      if (same) continue;
      refuse(source.path() + ": tensor " + m.weight,
             fmt::format("experts of a layer in several formats ({} and {}) work only on the CPU: "
                         "use --device cpu",
                         form.format->name, wanted.format->name));
    }
  }
}

}  // namespace

void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const LoadOptions& options) {
  const auto refuse = [&](const std::string& name, const std::string& reason) {
    if (!reason.empty()) throw Error(ErrorCode::usage, source.path() + ": tensor " + name, reason);
  };
  if (const std::string reason = why_not(config, options.device); !reason.empty())
    throw Error(ErrorCode::usage, source.path(), reason);
  refuse_experts(source, config, options);
  bool coded = false, rotated = false;
  const auto check = [&](const MatrixDesc& m) {
    if (!source.contains(m.weight)) return;
    const StoredForm form = source.form_of(m.weight);
    refuse(m.weight, why_not(form, options));
    coded |= !form.format->dense;
    rotated |= is_rotated(form);
  };
  for (const LayerDesc& layer : config.layers) {
    for (const MatrixDesc& m : layer.matrices)
      check(m);
  }
  check(config.head);
  if (source.contains(config.embedding)) {
    const StoredForm form = source.form_of(config.embedding);
    refuse(config.embedding, why_not_embedding(form, options.device));
  }
  const std::string reason = why_not(options);
  if (!reason.empty() && (coded || options.rotate_weights))
    throw Error(ErrorCode::usage, "device " + options.device.name(), reason);
  if (options.rotate_weights && !rotated) {
    throw Error(ErrorCode::usage, source.path(),
                "no matrix of this model is rotated: leave out --rotate weights");
  }
}

BufferShape prepared_shape(const StoredForm& form, int pass, int64_t cols, bool folded,
                           const LoadOptions& options) {
  const Format& format = *form.format;
  BufferShape shape;
  shape.cols = padded_cols(format, cols);
  const bool rotated = form.rotation[pass].kind != RotationKind::none;
  if (!(options.rotate_weights && is_rotated(form)))
    shape.planes = planes_of(format, options.activations);
  if (shape.planes > 0) {
    const bool in_rotated_basis = rotated || (folded && format.rotation_block > 0);
    shape.group = in_rotated_basis ? kActivationGroup : kPlainGroup;
  }
  return shape;
}

}  // namespace walsh
