#include "model/support.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/kernels.h"

namespace walsh {
namespace {

// Returns why a rotated matrix cannot be rotated back while it is multiplied; empty if it can.
std::string why_not_weight_side(const StoredForm& form) {
  const Format& format = *form.format;
  if (std::string reason = why_not(Kernel::gpu_weight_side, format); !reason.empty()) return reason;
  for (int pass = 0; pass < format.passes; ++pass) {
    const int block = form.rotation[pass].block;
    if (block <= kMostWeightSideBlock) continue;
    return fmt::format(
        "--rotate weights takes rotation blocks of up to {}, {} has {}: leave it out",
        kMostWeightSideBlock, format.name, block);
  }
  return {};
}

}  // namespace

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

const std::string& name_of(const ModelConfig& config, int layer, int matrix) {
  return layer < 0 ? config.head.weight
                   : config.layers[static_cast<size_t>(layer)].matrix(matrix).weight;
}

// Says which steps, by their kind and options, GPU kernels do not compute.
class GpuLimits {
 public:
  explicit GpuLimits(const ModelConfig& config) : config_(config) {}

  std::string operator()(const step::PrepareHeads& s) const {
    if (s.latent.present()) {
      if (s.latent.width > kMostGpuHeadDim || s.shared_key.width > kMostGpuSharedKey)
        return fmt::format("latents of more than {} and shared keys of more than {} values",
                           kMostGpuHeadDim, kMostGpuSharedKey);
      if (s.latent.width % kGpuHeadUnit == 0 && s.shared_key.width % kGpuHeadUnit == 0) return {};
      return fmt::format(
          "latents of {} and shared keys of {} values, which are no multiples of {},",
          s.latent.width, s.shared_key.width, kGpuHeadUnit);
    }
    if (s.options.norms_turned && (s.norms_all_heads() || s.unit().present()))
      return "norms of queries and keys after their rotation that are not of single heads";
    if (s.shape.dim > kMostGpuHeadDim)
      return fmt::format("heads of more than {} values", kMostGpuHeadDim);
    if (s.shape.dim % kGpuHeadUnit != 0)
      return fmt::format("heads of {} values, which are no multiple of {},", s.shape.dim,
                         kGpuHeadUnit);
    // The length is measured before the rope, which changes it by its magnitude. Gains correct that
    // for whole heads, but not where only a part of a head turns.
    if (!s.unit().present() || s.rope < 0) return {};
    const RopeConfig& rope = config_.ropes[static_cast<size_t>(s.rope)];
    const RopeTable table = rope_table(rope, s.shape.dim, config_.max_positions);
    const auto turned = 2 * static_cast<int64_t>(table.frequencies.size());
    if (table.magnitude != 1 && turned != s.shape.dim)
      return "queries and keys of unit length of which a rope with a magnitude turns a part";
    return {};
  }
  std::string operator()(const step::Experts& s) const {
    if (!s.experts.gated) return "experts without gates";
    if (s.experts.count <= kMostGpuExperts) return {};
    return fmt::format("layers with more than {} experts", kMostGpuExperts);
  }
  std::string operator()(const step::Product& s) const {
    const bool clamped = s.up.present() && s.gate.function == GateFunction::clamped_silu;
    return clamped ? "clamped gates outside experts" : "";
  }
  std::string operator()(const step::Embed& s) const {
    return s.to.rows == Rows::pair ? "layers that predict further tokens" : "";
  }
  std::string operator()(const step::DeltaRule& s) const {
    if (std::max(s.net.key_dim, s.net.value_dim) <= kMostGpuDeltaDim) return {};
    return fmt::format("recurrent heads of more than {} values", kMostGpuDeltaDim);
  }
  template <typename Any>
  std::string operator()(const Any&) const {
    return {};
  }

 private:
  const ModelConfig& config_;
};

// A GPU finds the matrices of a layer's experts by their number, so all experts must be stored
// alike.
Refusal why_not_experts(const ModelConfig& config, const LayerSteps& layer, const Step& step,
                        const LoadOptions& options) {
  if (options.rotate_weights)
    return {"--rotate weights has no kernels for experts: leave it out", ""};
  if (options.activations == ActivationMode::f16)
    return {"f16 activations do not work with experts: use auto, i8 or i8x2", ""};
  const std::vector<int> matrices = matrices_of(step);
  for (size_t i = 3; i < matrices.size(); ++i) {
    const auto form_of = [&](int matrix) -> const StoredForm& {
      return layer.matrices[static_cast<size_t>(matrix)].stored;
    };
    const StoredForm &form = form_of(matrices[i]), &wanted = form_of(matrices[i % 3]);
    if (form.format == nullptr || wanted.format == nullptr) continue;
    const bool same = form.format == wanted.format && form.rotation[0] == wanted.rotation[0] &&
                      form.rotation[1] == wanted.rotation[1];
    if (same) continue;
    return {fmt::format("experts of a layer in several formats ({} and {}) work only on the CPU: "
                        "use --device cpu",
                        form.format->name, wanted.format->name),
            "tensor " + name_of(config, step.layer, matrices[i])};
  }
  return {};
}

// Returns why a session cannot store the keys and values of a step in the types of its cache.
// Latents are keys and values at once, and only the CPU codes them.
std::string why_not_cached(const step::PrepareHeads& s, const LoadOptions& options) {
  const CacheTypes& types = options.cache;
  if (!types.coded() || !s.key.present()) return {};
  if (s.latent.present() && types.keys != types.values)
    return "latent attention keeps one vector as key and value: choose one type for both";
  if (!options.device.cuda) return {};
  if (s.latent.present()) return "latents are coded only on the CPU: use f16, or --device cpu";
  const std::string reason = why_not_on_gpus(types, s.shape.dim);
  return reason.empty() ? "" : reason + ": use --device cpu";
}

// Returns what the device cannot compute of a step, whatever its matrices are.
std::string why_not_computed(const ModelConfig& config, const Step& step, const Device& device) {
  if (!device.cuda) return {};
  const std::string limit = std::visit(GpuLimits(config), step.op);
  return limit.empty() ? "" : limit + " work only on the CPU: use --device cpu";
}

// Calls see(step) for all steps of the layers and the head.
template <typename See>
void each_step(const ModelSteps& steps, const See& see) {
  std::for_each(steps.embed.begin(), steps.embed.end(), see);
  for (const LayerSteps& layer : steps.layers)
    std::for_each(layer.steps.begin(), layer.steps.end(), see);
  std::for_each(steps.head.steps.begin(), steps.head.steps.end(), see);
}

}  // namespace

Refusal why_not(const ModelConfig& config, const ModelSteps& steps, const Step& step,
                const LoadOptions& options) {
  const LayerSteps& layer = steps.of(step.layer);
  if (std::string reason = why_not_computed(config, step, options.device); !reason.empty())
    return {std::move(reason), ""};
  if (options.device.cuda && std::holds_alternative<step::Experts>(step.op)) {
    Refusal refusal = why_not_experts(config, layer, step, options);
    if (!refusal.reason.empty()) return refusal;
  }
  if (const auto* heads = std::get_if<step::PrepareHeads>(&step.op)) {
    const CacheTypes& types = options.cache;
    if (std::string reason = why_not_cached(*heads, options); !reason.empty())
      return {std::move(reason),
              fmt::format("cache types '{}' and '{}'", types.keys->name, types.values->name)};
  }
  if (layer.matrices.empty()) return {};
  for (const int matrix : matrices_of(step)) {
    const StoredForm& form = layer.matrices[static_cast<size_t>(matrix)].stored;
    if (form.format == nullptr) continue;
    if (std::string reason = why_not(form, options); !reason.empty())
      return {std::move(reason), "tensor " + name_of(config, step.layer, matrix)};
  }
  return {};
}

std::string why_not(const ModelConfig& config, const Device& device) {
  const ModelSteps steps = make_steps(config);
  std::string reason;
  each_step(steps, [&](const Step& step) {
    if (reason.empty()) reason = why_not_computed(config, step, device);
  });
  return reason;
}

void refuse_unsupported(const WeightSource& source, const ModelConfig& config,
                        const ModelSteps& steps, const LoadOptions& options) {
  const auto refuse = [&](const std::string& place, const std::string& reason) {
    if (reason.empty()) return;
    throw Error(ErrorCode::usage, place.empty() ? source.path() : source.path() + ": " + place,
                reason);
  };
  bool coded = false, rotated = false;
  each_step(steps, [&](const Step& step) {
    const Refusal refusal = why_not(config, steps, step, options);
    refuse(refusal.place, refusal.reason);
    for (const int matrix : matrices_of(step)) {
      const StoredForm& form = steps.of(step.layer).matrices[static_cast<size_t>(matrix)].stored;
      if (form.format == nullptr) continue;
      coded |= !form.format->dense;
      rotated |= is_rotated(form);
    }
  });
  const auto check_table = [&](const std::string& name, const StoredForm& form) {
    if (form.format != nullptr) refuse("tensor " + name, why_not_embedding(form, options.device));
  };
  check_table(config.embedding, steps.embedding);
  check_table(config.layer_embedding.weight, steps.layer_embedding);
  const std::string reason = why_not(options);
  if (!reason.empty() && (coded || options.rotate_weights))
    throw Error(ErrorCode::usage, "device " + options.device.name(), reason);
  if (options.rotate_weights && !rotated) {
    throw Error(ErrorCode::usage, source.path(),
                "no matrix of this model is rotated: leave out --rotate weights");
  }
}

}  // namespace walsh
