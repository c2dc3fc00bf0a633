#include "model/support.h"

#include <fmt/format.h>

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
      return "--rotate weights exists on the GPU only: leave it out, or use --device cuda";
    if (mode == ActivationMode::f16)
      return "activations f16 exist on the GPU only: use auto, i8, i8x2, f32 or lut";
    return {};
  }
  if (mode == ActivationMode::f32 || mode == ActivationMode::lut)
    return "activations f32 and lut exist on the CPU only: use auto, i8, i8x2 or f16";
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
    return "rotated outputs (--rotate both) exist on the CPU only: use --device cpu";
  reason = why_not_embedding(form, options.device);
  if (!reason.empty() || !options.rotate_weights || !is_rotated(form)) return reason;
  return why_not_weight_side(form);
}

std::string why_not_embedding(const StoredForm& form, const Device& device) {
  const std::string reason = why_not(device, *form.format);
  if (!reason.empty() || !device.cuda) return reason;
  for (int pass = 0; pass < form.format->passes; ++pass) {
    if (form.rotation[pass].kind == RotationKind::qr)
      return "rotation qr exists on the CPU only: use --device cpu";
  }
  return {};
}

std::string why_not(const ModelConfig& config, const Device& device) {
  if (!device.cuda) return {};
  for (const LayerDesc& layer : config.layers) {
    const AttentionDesc& a = layer.attention;
    if (a.latent.present()) return "latent attention exists on the CPU only: use --device cpu";
    if (a.chunk != 0) return "attention to chunks exists on the CPU only: use --device cpu";
    if (a.unit_eps != 0 || a.growth != 0)
      return "queries and keys of unit length, or that grow without rope, exist on the CPU only: "
             "use "
             "--device cpu";
    if (layer.experts.present())
      return "layers with experts exist on the CPU only: use --device cpu";
    if (!a.sinks.empty()) return "attention with sinks exists on the CPU only: use --device cpu";
    if (layer.mlp.function == GateFunction::clamped_silu)
      return "clamped gates exist on the CPU only: use --device cpu";
    if (layer.delta_net.present())
      return "recurrent layers exist on the CPU only: use --device cpu";
    if (a.gated) return "attention with gates exists on the CPU only: use --device cpu";
  }
  return {};
}

void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const LoadOptions& options) {
  const auto refuse = [&](const std::string& name, const std::string& reason) {
    if (!reason.empty()) throw Error(ErrorCode::usage, source.path() + ": tensor " + name, reason);
  };
  if (const std::string reason = why_not(config, options.device); !reason.empty())
    throw Error(ErrorCode::usage, source.path(), reason);
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
