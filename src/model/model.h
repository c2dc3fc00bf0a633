// Holds a decoder in memory: how every matrix is stored and what its input must look like.
// session.h has the forward pass over it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/config.h"
#include "base/device.h"
#include "base/thread_pool.h"
#include "cache/cache_type.h"
#include "codec/weight_source.h"
#include "kernels/ops.h"
#include "model/kv_pages.h"
#include "model/steps.h"

namespace walsh {

// Says what coded weights are multiplied with. automatic: the int8 planes that each format asks
// for; f32 exists on the CPU, f16 (16-bit floats) on the GPU. lut: as automatic, but product
// formats by look-up in tables of products instead of decoding (CPU).
enum class ActivationMode : uint8_t { automatic, i8, i8x2, f16, f32, lut };
ActivationMode parse_activation_mode(std::string_view name);  // throws usage

// A matrix in the memory of another device than the CPU has these weights.
struct DeviceWeights {
  virtual ~DeviceWeights() = default;
  virtual uint64_t bytes() const = 0;
};

// Tokens look up rows of such a table, as it is stored.
struct TokenTable {
  Tensor stored;
  std::shared_ptr<const DeviceWeights> device_weights;  // on another device than the CPU
  std::vector<const Rotator*> rotators;                 // per pass of a coded one, or null

  bool present() const { return stored.format != nullptr; }
  uint64_t bytes() const;  // as it is stored; 0 if there is none
  // Writes row `id` times `scale` to out[cols]. `scratch` has room for scratch() floats.
  void look_up(int64_t id, float scale, float* out, float* scratch) const;
  int64_t scratch() const;
};

// A weight matrix [rows, cols] is plain or has one or two coded passes; on the CPU a plain one is
// used in place.
struct Linear {
  int64_t rows = 0, cols = 0;
  const Format* format = nullptr;  // in memory
  const Format* stored = nullptr;  // in the file; differs where it is decoded for good
  Tensor dense;                    // on the CPU, if the format is dense
  // Coded matrices on the CPU compute y = sum over passes of W_p x_p.
  std::vector<std::shared_ptr<const PanelMatrix>> passes;
  std::shared_ptr<const DeviceWeights> device_weights;  // on another device
  std::vector<float> bias;                              // [rows] or empty
  const Rotator* output = nullptr;                      // the products give R y; null: y itself
  int input[2] = {0, 0};  // per pass: index of the prepared input x_p (MatrixForm)

  bool is_dense() const { return format->dense; }
  uint64_t bytes() const;  // read per product
};

// Holds the weights of a layer, in the places that its description (ModelConfig::layers) gives
// them.
struct Layer {
  std::vector<Linear> matrices;             // as LayerDesc::matrices
  std::vector<std::vector<float>> vectors;  // as layer_vectors()

  const Linear& matrix(int index) const { return matrices[static_cast<size_t>(index)]; }
};

// These stand for numbers of layers: all of them, or as planned from the memory that the GPU has.
inline constexpr int64_t kAllLayers = std::numeric_limits<int64_t>::max(), kPlanned = -1;

struct LayerSplit;
class Model;

struct LoadOptions {
  ThreadPool* pool = nullptr;  // outlives the model; required
  ActivationMode activations = ActivationMode::automatic;
  // This is called before each tensor with its number, the number of all, and its name.
  std::function<void(size_t, size_t, const std::string&)> progress;
  Device device = {};  // that computes
  // A GPU that refuses the model before it is loaded (formats without kernels, too little memory)
  // is not used, and Model::device_note says why; otherwise the refusal is thrown.
  bool may_use_cpu = false;
  CacheTypes cache = {};  // of sessions
  // Sessions will ask for this, so that a GPU whose memory it exceeds refuses it before loading.
  SessionOptions use = {};
  uint64_t device_bytes = 0;  // at most so much memory of the GPU; 0: all that is free
  uint64_t device_spare = 0;  // left free there, for instance for another model
  // This rotates weights back while they are loaded into a kernel instead of rotating activations
  // (GPU): for comparison, see docs/gpu.md.
  bool rotate_weights = false;
  // With a GPU, this many of the last layers, and the head, are there. If these are not all, the
  // others and the embedding are on the CPU; 0: the whole model is on the CPU. kPlanned: as many as
  // fit.
  int64_t gpu_layers = kAllLayers;
  // The CPU computes the routed experts of this many layers, counted from the first, from its own
  // memory; it has the embedding, too. kPlanned: none if gpu_layers is a number, else as few as
  // fit.
  int64_t cpu_experts = 0;
  // A batch on a GPU has this many tokens, so that results do not depend on the memory that is
  // free; 0: as sessions, or the other part, want them and memory allows.
  int64_t batch_rows = 0;
  // This model, which outlives the loaded one, has its embedding and head: the loaded one is its
  // layer that predicts ahead (ModelConfig::ahead).
  const Model* ends = nullptr;
};

class Model {
 public:
  // Reads every tensor of `source`, which may be destroyed afterwards. Throws bad_input naming file
  // and tensor for one that is missing, has another shape than the config says, or is not part of
  // the function. Throws usage for a split that is impossible, and limit with the numbers for one
  // that does not fit. device_note says what was planned if it is not the whole model.
  static Model load(WeightSource& source, const ModelConfig& config, const LoadOptions& options);
  // Returns the same in two parts as `split` says (model/split.h), the first one on the CPU, the
  // second one on options.device.
  static Model load_parts(WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options, const LayerSplit& split);
  // Loads only what `part` has of the source's model. check_part() throws what this would throw
  // before it reads a tensor.
  static Model load_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options);
  static void check_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options);
  // Returns as many positions of one sequence as the model has and memory has room for beside the
  // weights: of the GPU that has the whole model, otherwise of the host, half of what is left
  // there. Never fewer than choose_positions gives for 0. options.use.max_positions does not
  // matter.
  static int64_t fitting_positions(WeightSource& source, const ModelConfig& config,
                                   const LoadOptions& options);

  Model(Model&&) = default;
  Model& operator=(Model&&) = default;

  ThreadPool& pool() const { return *pool_; }

  uint64_t model_bytes() const;      // all tensors, as they are stored
  uint64_t bytes_per_token() const;  // weights read to decode one token
  // Returns the stored bits per weight of the matrices of the layers (without embedding, head and
  // routers).
  double bits_per_weight() const;
  // Returns the format of most of those weights.
  std::string_view type_name() const;

  // Returns what a vector of a layer, or of the head (-1), holds; nothing for vector -1.
  std::span<const float> vector(int layer, int index) const {
    if (index < 0) return {};
    const auto& vectors = layer < 0 ? head_vectors : layers[static_cast<size_t>(layer)].vectors;
    return vectors[static_cast<size_t>(index)];
  }
  // Matrix 0 of layer -1 is the head.
  const Linear& matrix(int layer, int index) const {
    return layer < 0 ? head : layers[static_cast<size_t>(layer)].matrix(index);
  }
  // Returns the activations that a layer, or the head (-1), reads.
  const Input& input(int layer, int index) const {
    return steps.of(layer).inputs[static_cast<size_t>(index)];
  }

  // Returns whether batches have streams, which its first layer joins with tokens.
  bool joins() const { return !config.layers.empty() && config.layers.front().join.present(); }
  bool has_embedding() const { return embedding.present(); }
  bool has_head() const { return head.format != nullptr; }
  // Returns the parts of a model in parts, or the model itself: what has layers, embedding and
  // head.
  std::span<const Model> all_parts() const {
    return parts.empty() ? std::span(this, 1) : std::span(parts);
  }

  ModelConfig config;
  Device device;
  std::string device_note;    // why `device` is not the one that was asked for; usually empty
  uint64_t device_spare = 0;  // bytes of the GPU's free memory that are left free
  ActivationMode activations = ActivationMode::automatic;
  bool rotate_weights = false;  // LoadOptions
  CacheTypes cache;             // of its sessions
  int64_t batch_rows = 0;       // LoadOptions
  ModelSteps steps;             // what executors run
  std::vector<Layer> layers;
  TokenTable embedding, layer_embedding;
  Linear head;
  std::vector<std::vector<float>> head_vectors;  // the final norm's gain
  // A model on two devices has its parts here, in the order of the computation (model/split.h),
  // each with the config of what it has. The model itself has no weights then.
  std::vector<Model> parts;

 private:
  friend class ModelLoader;
  Model() = default;
  ThreadPool* pool_ = nullptr;
  std::vector<std::unique_ptr<Rotator>> rotators_;  // what the transforms point to
  uint64_t other_bytes_ = 0;                        // norms and biases
};

}  // namespace walsh
