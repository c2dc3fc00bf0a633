// Holds a decoder in memory: how every matrix is stored, and what its input must look like. Session
// (session.h) computes its forward pass.
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

// Says what coded weights are multiplied with. automatic takes the int8 planes that each format
// asks for. Only the CPU has f32, and only GPUs have f16 (16-bit floats). lut equals automatic,
// except that product formats are multiplied by looking up products in tables instead of decoding
// (CPU).
enum class ActivationMode : uint8_t { automatic, i8, i8x2, f16, f32, lut };
ActivationMode parse_activation_mode(std::string_view name);  // An unknown name throws usage.

// Holds a matrix's weights in the memory of a device other than the CPU. Devices derive their own.
struct DeviceWeights {
  virtual ~DeviceWeights() = default;
  virtual uint64_t bytes() const = 0;
};

// Holds a table whose rows tokens look up, in the form in which it is stored.
struct TokenTable {
  Tensor stored;
  // These are set on other devices than the CPU.
  std::shared_ptr<const DeviceWeights> device_weights;
  // A coded table has one per pass, which may be null.
  std::vector<const Rotator*> rotators;

  bool present() const { return stored.format != nullptr; }
  uint64_t bytes() const;  // Returns the bytes as stored, 0 if there is no table.
  // Writes scale * row `id` to out[cols]. `scratch` has room for scratch() floats.
  void look_up(int64_t id, float scale, float* out, float* scratch) const;
  int64_t scratch() const;
};

// Holds a weight matrix [rows, cols], which is plain or has one or two coded passes. The CPU uses a
// plain one in place, in the memory of its source.
struct Linear {
  int64_t rows = 0, cols = 0;
  const Format* format = nullptr;  // The weights have this format in memory.
  // It is the format in the file, unlike `format` if the matrix is decoded once when loaded.
  const Format* stored = nullptr;
  Tensor dense;  // It is set on the CPU if the format is dense.
  // Coded matrices on the CPU compute y = sum over passes p of W_p x_p, where x_p is a prepared
  // input.
  std::vector<std::shared_ptr<const PanelMatrix>> passes;
  // Other devices than the CPU have the weights here.
  std::shared_ptr<const DeviceWeights> device_weights;
  std::vector<float> bias;  // Its shape is [rows], or it is empty.
  // If set, the products give R y for this rotation R; else y.
  const Rotator* output = nullptr;
  int input[2] = {0, 0};  // Each pass p reads the prepared input x_p of this index (MatrixForm).

  bool is_dense() const { return format->dense; }
  uint64_t bytes() const;  // Returns what a product reads.
};

// Holds the weights of a layer, with the indices of its description (ModelConfig::layers).
struct Layer {
  std::vector<Linear> matrices;             // They are in the order of LayerDesc::matrices.
  std::vector<std::vector<float>> vectors;  // They are in the order of layer_vectors().

  const Linear& matrix(int index) const { return matrices[static_cast<size_t>(index)]; }
};

// These stand for numbers of layers. kAllLayers means all; kPlanned means as many as the plan of
// the GPU's memory allows.
inline constexpr int64_t kAllLayers = std::numeric_limits<int64_t>::max(), kPlanned = -1;

struct LayerSplit;
class Model;

struct LoadOptions {
  ThreadPool* pool = nullptr;  // It is required and outlives the model.
  ActivationMode activations = ActivationMode::automatic;
  // This is called before each tensor with its number, the number of all, and its name.
  std::function<void(size_t, size_t, const std::string&)> progress;
  Device device = {};  // This device computes.
  // If the GPU refuses the model before it is loaded (formats without kernels, too little memory),
  // the CPU takes it and Model::device_note says why. Without this flag the refusal is thrown.
  bool may_use_cpu = false;
  CacheTypes cache = {};  // Sessions store keys and values in these types.
  // Sessions will ask for this. A GPU whose memory it exceeds refuses it before loading.
  SessionOptions use = {};
  uint64_t device_bytes = 0;  // At most this much memory of the GPU is used; 0: all that is free.
  uint64_t device_spare = 0;  // This much of it stays free, for instance for another model.
  // If true, weights are rotated back while a kernel loads them, instead of rotating activations
  // (GPU). It exists for comparison, see docs/gpu.md.
  bool rotate_weights = false;
  // With a GPU, it has this many of the last layers, and the head. If that is not all, the CPU has
  // the other layers and the embedding; with 0 the whole model is on the CPU. kPlanned: as many as
  // fit.
  int64_t gpu_layers = kAllLayers;
  // The CPU computes the routed experts of this many layers, counted from the first, from its own
  // memory; it then also has the embedding. kPlanned: none if gpu_layers is a number, else as few
  // as fit.
  int64_t cpu_experts = 0;
  // Batches on a GPU have this many tokens, so that results do not depend on how much memory is
  // free; 0: as many as sessions or the other part want and memory allows.
  int64_t batch_rows = 0;
  // If set, the loaded model is the layer that predicts ahead (ModelConfig::ahead) of this model,
  // whose embedding and head it uses. This model outlives it.
  const Model* ends = nullptr;
};

class Model {
 public:
  // Reads every tensor of `source`, which may be destroyed afterwards. Throws bad_input naming file
  // and tensor for one that is missing, has another shape than the config says, or is not part of
  // the function. Throws usage for an impossible split, and limit with the numbers for one that
  // does not fit. If the device does not get the whole model, device_note says what was planned.
  static Model load(WeightSource& source, const ModelConfig& config, const LoadOptions& options);
  // Loads the same in two parts as `split` says (model/split.h), the first one on the CPU and the
  // second one on options.device.
  static Model load_parts(WeightSource& source, const ModelConfig& config,
                          const LoadOptions& options, const LayerSplit& split);
  // Loads only the tensors of `part`, a config of a part of the source's model. check_part() throws
  // what this would throw before it reads a tensor.
  static Model load_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options);
  static void check_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options);
  // Returns how many positions one sequence can have: as many as the model has and as memory has
  // room for beside the weights. That is the memory of the GPU if it has the whole model, otherwise
  // half of what is left on the host. The result is never below choose_positions for 0.
  // options.use.max_positions is not read.
  static int64_t fitting_positions(WeightSource& source, const ModelConfig& config,
                                   const LoadOptions& options);

  Model(Model&&) = default;
  Model& operator=(Model&&) = default;

  ThreadPool& pool() const { return *pool_; }

  uint64_t model_bytes() const;  // Returns the bytes of all tensors as stored.
  // Returns the bytes of the weights that decoding a token reads.
  uint64_t bytes_per_token() const;
  // Returns the stored bits per weight over the matrices of the layers, without embedding, head and
  // routers.
  double bits_per_weight() const;
  // Returns the name of the format that most of those weights have.
  std::string_view type_name() const;

  // Returns the values of a vector of a layer, or of the head (layer -1); empty for vector -1.
  std::span<const float> vector(int layer, int index) const {
    if (index < 0) return {};
    const auto& vectors = layer < 0 ? head_vectors : layers[static_cast<size_t>(layer)].vectors;
    return vectors[static_cast<size_t>(index)];
  }
  // Returns a matrix of a layer; matrix 0 of layer -1 is the head.
  const Linear& matrix(int layer, int index) const {
    return layer < 0 ? head : layers[static_cast<size_t>(layer)].matrix(index);
  }
  // Returns the activations that a layer, or the head (-1), reads.
  const Input& input(int layer, int index) const {
    return steps.of(layer).inputs[static_cast<size_t>(index)];
  }

  // Returns whether batches have to bring streams, which the first layer joins with tokens
  // (multi-token prediction).
  bool joins() const { return !config.layers.empty() && config.layers.front().join.present(); }
  bool has_embedding() const { return embedding.present(); }
  bool has_head() const { return head.format != nullptr; }
  // Returns the models that have layers, embedding and head: the parts, or the model itself if it
  // has none.
  std::span<const Model> all_parts() const {
    return parts.empty() ? std::span(this, 1) : std::span(parts);
  }

  ModelConfig config;
  Device device;
  std::string device_note;    // It says why `device` is not the one asked for, if so.
  uint64_t device_spare = 0;  // This many bytes of the GPU's free memory stay free.
  ActivationMode activations = ActivationMode::automatic;
  bool rotate_weights = false;  // LoadOptions asked for it.
  CacheTypes cache;             // Its sessions store keys and values in these types.
  int64_t batch_rows = 0;       // LoadOptions asked for it.
  ModelSteps steps;             // Executors run this list.
  std::vector<Layer> layers;
  TokenTable embedding, layer_embedding;
  Linear head;
  std::vector<std::vector<float>> head_vectors;  // They hold the gain of the final norm.
  // A model on two devices has no weights of its own. Its parts are here in the order of the
  // computation (model/split.h), each with the config of what it has.
  std::vector<Model> parts;

 private:
  friend class ModelLoader;
  Model() = default;
  ThreadPool* pool_ = nullptr;
  std::vector<std::unique_ptr<Rotator>> rotators_;  // The transforms of inputs point to these.
  uint64_t other_bytes_ = 0;                        // It counts norms and biases.
};

}  // namespace walsh
