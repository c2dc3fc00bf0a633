#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "arch/plan.h"
#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "base/memory.h"
#include "model/by_head.h"
#include "model/model.h"
#include "model/placement.h"
#include "model/positions.h"
#include "model/split.h"
#include "model/support.h"

namespace walsh {
namespace {

// Counts the tensors that have been read. The loaders of all parts of a model share it.
struct Progress {
  size_t done = 0, total = 0;  // They count tensors.
  // Holds the names of tensors that are no matrices; a norm may be in both parts.
  std::set<std::string> vectors;
};

[[noreturn]] void fail(const WeightSource& source, const std::string& tensor,
                       const std::string& reason) {
  throw Error(ErrorCode::bad_input, source.path() + ": tensor " + tensor, reason);
}

// Checks that the source has all tensors that the config asks for and no others, except ignored
// ones. Returns the number of tensors to load.
size_t check_names(const WeightSource& source, const ModelConfig& config) {
  std::set<std::string> wanted;
  for (const TensorShape& tensor : model_tensors(config)) {
    if (!source.contains(tensor.name))
      fail(source, tensor.name, "missing, but the config asks for it");
    wanted.insert(tensor.name);
  }
  const ModelPlan plan = make_plan(config);
  std::set<std::string> ignored(plan.ignored.begin(), plan.ignored.end());
  if (config.ahead.present())
    for (const TensorShape& tensor : model_tensors(ahead_config(config)))
      ignored.insert(tensor.name);
  for (const std::string& name : source.names()) {
    if (!wanted.contains(name) && !ignored.contains(name))
      fail(source, name, "unexpected: not part of a " + config.family + " model of this config");
  }
  return wanted.size();
}

}  // namespace

// Loads the tensors of a source into a Model, or into a part of one, one after the other.
class ModelLoader {
 public:
  // `steps` belong to the config and have passed the checks of support.h. Refuses whatever else can
  // be refused before a tensor is read.
  ModelLoader(WeightSource& source, const ModelConfig& config, ModelSteps steps,
              const LoadOptions& options, Progress& progress)
      : source_(source),
        options_(options),
        placement_(make_placement(options.device)),
        progress_(progress) {
    model_.config = config;
    model_.steps = std::move(steps);
    require_matrices();
    model_.device = options.device;
    model_.activations = options.activations;
    model_.rotate_weights = options.rotate_weights;
    model_.cache = options.cache;
    model_.batch_rows = options.batch_rows;
    model_.pool_ = options.pool;
    choose_positions(config, options.use.max_positions);
    model_.device_spare = placement_->plan(source, config, model_.steps, options);
  }

  Model load() {
    if (options_.device.cuda) source_.encode_on(options_.device);
    const ModelConfig& c = model_.config;
    if (options_.ends != nullptr) {
      model_.embedding = options_.ends->embedding;
    } else if (!c.embedding.empty()) {
      load_table(c.embedding, c.hidden, model_.embedding);
    }
    if (c.layer_embedding.present())
      load_table(c.layer_embedding.weight, c.layer_embedding.cols, model_.layer_embedding);
    for (size_t i = 0; i < c.layers.size(); ++i)
      load_layer(c.layers[i].matrices, model_.steps.layers[i], model_.layers.emplace_back());
    if (!c.head.weight.empty()) load_head();
    placement_->finish();
    return std::move(model_);
  }

  // Returns the model that has `first` and `second` as its parts.
  static Model join(const ModelConfig& config, Model first, Model second) {
    Model model;
    model.config = config;
    model.device = second.device;
    model.device_spare = second.device_spare;
    model.activations = second.activations;
    model.rotate_weights = second.rotate_weights;
    model.cache = second.cache;
    model.pool_ = second.pool_;
    model.parts.push_back(std::move(first));
    model.parts.push_back(std::move(second));
    return model;
  }

 private:
  // Refuses matrices that are missing, which the list of steps could not check because it does not
  // know their form.
  void require_matrices() {
    const ModelConfig& c = model_.config;
    const auto require = [&](const MatrixDesc& m, const MatrixForm& form) {
      if (form.stored.format == nullptr)
        fail(source_, m.weight, "missing, but the config asks for it");
    };
    for (size_t i = 0; i < c.layers.size(); ++i)
      for (size_t m = 0; m < c.layers[i].matrices.size(); ++m)
        require(c.layers[i].matrices[m], model_.steps.layers[i].matrices[m]);
    if (!c.head.weight.empty()) require(c.head, model_.steps.head.matrices[0]);
  }

  Tensor tensor(const std::string& name, int64_t rows, int64_t cols) {
    if (options_.progress)
      options_.progress(std::min(progress_.done, progress_.total), progress_.total, name);
    ++progress_.done;
    Tensor result = source_.load(name);
    if (result.rows != rows || result.cols != cols) {
      fail(source_, name,
           fmt::format("shape is [{}, {}], expected [{}, {}]", result.rows, result.cols, rows,
                       cols));
    }
    return result;
  }

  // Returns a tensor that no activation is multiplied with, as float32, and counts its bytes as
  // stored.
  std::vector<float> values(const std::string& name, int64_t rows, int64_t cols) {
    const Tensor stored = tensor(name, rows, cols);
    if (!stored.format->dense) fail(source_, name, "a vector in a coded format");
    std::vector<float> result(static_cast<size_t>(rows * cols));
    decode_rows(stored, 0, rows, result.data());
    if (progress_.vectors.insert(name).second)
      model_.other_bytes_ += tensor_bytes(*stored.format, rows, cols);
    return result;
  }

  void load_table(const std::string& name, int64_t cols, TokenTable& table) {
    table.stored = tensor(name, model_.config.vocab, cols);
    for (int pass = 0; pass < table.stored.format->passes; ++pass)
      table.rotators.push_back(rotator(table.stored.rotation[pass], table.scratch()));
    table.device_weights = placement_->place_table(table.stored);
  }

  void load_layer(const std::vector<MatrixDesc>& matrices, LayerSteps& steps, Layer& layer) {
    for (const VectorDesc& desc : steps.vectors)
      layer.vectors.push_back(vector(desc));
    make_rotators(steps);
    for (size_t i = 0; i < matrices.size(); ++i)
      load_matrix(matrices[i], steps.matrices[i], layer.matrices.emplace_back());
  }

  void load_head() {
    LayerSteps& steps = model_.steps.head;
    for (const VectorDesc& desc : steps.vectors)
      model_.head_vectors.push_back(vector(desc));
    make_rotators(steps);
    if (options_.ends != nullptr) {
      model_.head = options_.ends->head;
    } else {
      load_matrix(model_.config.head, steps.matrices[0], model_.head);
    }
  }

  // Returns a vector as the forward pass uses it, i.e. after its form, offset and factor.
  std::vector<float> vector(const VectorDesc& desc) {
    using Form = VectorDesc::Form;
    if (desc.form == Form::constant)
      return std::vector<float>(static_cast<size_t>(desc.size()), desc.offset);
    std::vector<float> stored = values(desc.name, desc.rows, desc.cols);
    if (desc.form == Form::exponential)
      for (float& value : stored)
        value = std::exp(value);
    if (desc.offset != 0)
      for (float& value : stored)
        value += desc.offset;
    if (desc.factor != 1)
      for (float& value : stored)
        value *= desc.factor;
    if (desc.form != Form::transposed) return stored;
    std::vector<float> result(stored.size());
    for (int64_t r = 0; r < desc.rows; ++r) {
      for (int64_t c = 0; c < desc.cols; ++c)
        result[static_cast<size_t>(c * desc.rows + r)] =
            stored[static_cast<size_t>(r * desc.cols + c)];
    }
    return result;
  }

  // Makes the rotators for the forms in which the inputs of a layer are prepared.
  void make_rotators(LayerSteps& steps) {
    for (Input& input : steps.inputs)
      for (PreparedInput& form : input.forms)
        form.transform.rotator = rotator(form.rotation, form.transform.cols);
  }

  void load_matrix(const MatrixDesc& m, const MatrixForm& form, Linear& linear) {
    const bool tied = m.weight == model_.config.embedding;
    Tensor stored = tied ? model_.embedding.stored : tensor(m.weight, m.rows, m.cols);
    linear.rows = m.rows;
    linear.cols = m.cols;
    linear.format = linear.stored = stored.format;
    std::copy(std::begin(form.input), std::end(form.input), std::begin(linear.input));
    if (!m.bias.empty()) linear.bias = values(m.bias, 1, m.rows);
    check_form(m.weight, stored, form.stored);
    const Rotator* output = rotator(form.stored.output, m.rows);
    if (form.by_head) {
      stored = decode_heads(placement_->on_host(stored), output, form.heads, form.transposed,
                            *model_.pool_);
      linear.format = stored.format;
    } else {
      linear.output = output;
    }
    placement_->place(linear, std::move(stored), m);
    const bool in_use = linear.is_dense() && !form.by_head && !model_.device.cuda;
    if (!tied && !in_use) source_.release(m.weight);
  }

  // Checks that a tensor is stored as the source has said, because the list of steps relies on it.
  void check_form(const std::string& name, const Tensor& stored, const StoredForm& said) {
    const auto is_same = [](const Rotation& a, const Rotation& b) {
      return a == b || (a.kind == RotationKind::none && b.kind == RotationKind::none);
    };
    bool same = stored.format->dense ? said.format->dense : stored.format == said.format;
    for (int pass = 0; pass < stored.format->passes; ++pass)
      same = same && is_same(stored.rotation[pass], said.rotation[pass]);
    if (same) return;
    throw Error(ErrorCode::internal, source_.path() + ": tensor " + name,
                "is stored in another form than its source says");
  }

  // Returns one rotator for all equal rotations of the same length, null if there is no rotation.
  const Rotator* rotator(const Rotation& rotation, int64_t k) {
    if (rotation.kind == RotationKind::none) return nullptr;
    for (const auto& known : model_.rotators_) {
      if (known->size() == k && known->rotation() == rotation) return known.get();
    }
    model_.rotators_.push_back(std::make_unique<Rotator>(rotation, k));
    return model_.rotators_.back().get();
  }

  WeightSource& source_;
  const LoadOptions options_;
  std::unique_ptr<Placement> placement_;
  Progress& progress_;
  Model model_;
};

namespace {

// Returns the steps of a model, or of a part of one. Refuses those that the device cannot execute.
ModelSteps supported_steps(const WeightSource& source, const ModelConfig& config,
                           const LoadOptions& options) {
  ModelSteps steps = make_steps(config, source, options);
  refuse_unsupported(source, config, steps, options);
  return steps;
}

// Loads a model, or both of its parts, after planning the memory. The constructor refuses whatever
// can be refused before a tensor is read.
class Loading {
 public:
  Loading(WeightSource& source, const ModelConfig& config, const LoadOptions& options)
      : config_(config) {
    add(source, config, supported_steps(source, config, options), options);
  }

  // What the second part refuses has to be known before the first part is planned.
  Loading(WeightSource& source, const ModelConfig& config, const LoadOptions& options,
          const LayerSplit& split)
      : config_(config) {
    LoadOptions cpu = options;
    cpu.device = {};
    const ModelParts parts = split_config(config, split);
    ModelSteps first = supported_steps(source, parts.first, cpu);
    ModelSteps second = supported_steps(source, parts.second, options);
    add(source, parts.first, std::move(first), cpu);
    add(source, parts.second, std::move(second), options);
  }

  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  // The GPU's part is loaded last, because from then on tensors may be encoded in the GPU's memory.
  Model load(size_t tensors) {
    progress_.total = tensors;
    Model first = loaders_.front()->load();
    if (loaders_.size() == 1) return first;
    return ModelLoader::join(config_, std::move(first), loaders_.back()->load());
  }

 private:
  void add(WeightSource& source, const ModelConfig& config, ModelSteps steps,
           const LoadOptions& options) {
    loaders_.push_back(
        std::make_unique<ModelLoader>(source, config, std::move(steps), options, progress_));
  }

  const ModelConfig& config_;
  Progress progress_;
  std::vector<std::unique_ptr<ModelLoader>> loaders_;
};

bool is_supported(const WeightSource& source, const ModelConfig& config,
                  const LoadOptions& options) {
  try {
    supported_steps(source, config, options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Refuses numbers of layers that the model cannot have.
void check_counts(const ModelConfig& config, const LoadOptions& options) {
  const int64_t layers = options.gpu_layers;
  if (layers < kPlanned)
    throw Error(ErrorCode::usage, "gpu-layers",
                fmt::format("the number of layers is {}, expected 0 or more", layers));
  if (options.cpu_experts < kPlanned) {
    throw Error(ErrorCode::usage, "cpu-experts",
                fmt::format("the number of layers is {}, expected 0 or more", options.cpu_experts));
  }
  if (options.cpu_experts > 0 && !has_experts(config))
    throw Error(ErrorCode::usage, "cpu-experts", "the model has no experts");
  if (options.device.cuda || layers <= 0 || layers == kAllLayers) return;
  // If there is a GPU, the CPU was chosen by another option.
  const std::string reason = cuda::first_device() ? "" : ": " + cuda::unavailable_reason();
  throw Error(ErrorCode::usage, "gpu-layers",
              fmt::format("{} asked for, but no GPU is used{}", layers, reason));
}

std::unique_ptr<Loading> place(WeightSource& source, const ModelConfig& config,
                               const LoadOptions& options, const LayerSplit& split) {
  if (split.whole()) return std::make_unique<Loading>(source, config, options);
  return std::make_unique<Loading>(source, config, options, split);
}

std::unique_ptr<Loading> place_as_asked(WeightSource& source, const ModelConfig& config,
                                        const LoadOptions& options) {
  const LayerSplit split = wanted_split(config, options.gpu_layers, options.cpu_experts);
  try {
    return place(source, config, options, split);
  } catch (const Error& e) {
    // Only one of the devices may lack what an option asks of both, so the message names the split.
    const bool refused = e.code() == ErrorCode::usage || e.code() == ErrorCode::limit;
    if (split.whole() || !refused) throw;
    throw Error(e.code(), e.where(),
                e.reason() + "; you asked for: " + split_text(config, split, options.device));
  }
}

// Places as much on the GPU as fits. `note` says how much that is, and why it is not everything.
std::unique_ptr<Loading> place_what_fits(WeightSource& source, const ModelConfig& config,
                                         const LoadOptions& options, std::string& note) {
  std::optional<Error> why;
  std::unique_ptr<Loading> placed;
  LayerSplit placed_so;
  const auto fits = [&](const LayerSplit& split) {
    placed.reset();
    try {
      placed = place(source, config, options, split);
      placed_so = split;
      return true;
    } catch (const Error& e) {
      // Once the whole model did not fit, something that the CPU cannot do only rules out this
      // split.
      const bool no_way = e.code() == ErrorCode::usage && why;
      if (e.code() != ErrorCode::limit && !no_way) throw;
      if (!why) why = e;
      return false;
    }
  };
  const std::optional<LayerSplit> split = choose_split(config, options.cpu_experts, fits);
  if (!split) throw Error(*why);
  if (why) note = split_text(config, *split, options.device) + ": " + why->what();
  return placed && placed_so == *split ? std::move(placed) : place(source, config, options, *split);
}

// Halves `most` until the whole model fits with that many positions, or the part of it that was
// asked for, and returns the number; `least` if none fits.
int64_t positions_on_gpu(WeightSource& source, const ModelConfig& config,
                         const LoadOptions& options, int64_t least, int64_t most) {
  LoadOptions tried = options;
  tried.progress = {};
  const bool planned = options.gpu_layers == kPlanned;
  const LayerSplit split =
      wanted_split(config, planned ? kAllLayers : options.gpu_layers, options.cpu_experts);
  for (int64_t positions = most; positions > least; positions /= 2) {
    tried.use.max_positions = positions;
    try {
      place(source, config, tried, split);
      return positions;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::limit) break;  // Loading says what is wrong.
    }
  }
  return least;
}

// Returns for how many positions keys and values take half of the memory that the weights leave.
int64_t positions_on_host(const WeightSource& source, const ModelConfig& config,
                          const CacheTypes& cache) {
  constexpr int64_t kStep = 1024;
  uint64_t weights = 0;
  for (const TensorShape& tensor : model_tensors(config))
    if (source.contains(tensor.name))
      weights += tensor_bytes(source.format_of(tensor.name), tensor.rows, tensor.cols);
  double bytes = 0;  // A position takes this many bytes.
  for (const LayerDesc& layer : config.layers)
    bytes += position_bytes(layer.attention, cache);
  const uint64_t available = available_memory();
  const uint64_t left = available - std::min(available, weights);
  const uint64_t room = std::min(left / 2, SessionOptions().max_bytes / 2);
  if (bytes == 0) return config.max_positions;  // All layers are recurrent.
  const double positions =
      std::min(static_cast<double>(room) / bytes, static_cast<double>(config.max_positions));
  return static_cast<int64_t>(positions) / kStep * kStep;
}

}  // namespace

Model Model::load(WeightSource& source, const ModelConfig& config, const LoadOptions& options) {
  if (options.pool == nullptr) {
    throw Error(ErrorCode::internal, source.path(), "Model::load needs a thread pool");
  }
  LoadOptions cpu = options;
  cpu.device = {};
  const LoadOptions& wanted = options.gpu_layers == 0 ? cpu : options;
  check_counts(config, wanted);
  const size_t tensors = check_names(source, config);
  if (!wanted.device.cuda) return Loading(source, config, wanted).load(tensors);
  std::unique_ptr<Loading> loading;
  std::string note;
  const bool planned = wanted.gpu_layers == kPlanned;
  try {
    loading = planned ? place_what_fits(source, config, wanted, note)
                      : place_as_asked(source, config, wanted);
  } catch (const Error& e) {
    const bool refused = e.code() == ErrorCode::usage || e.code() == ErrorCode::limit;
    const bool counted = !planned && wanted.gpu_layers != kAllLayers;
    if (!refused || counted || !options.may_use_cpu) throw;
    if (!is_supported(source, config, cpu)) throw;
    note = options.device.name() + " cannot be used, so the model runs on the CPU: " + e.what();
    loading = std::make_unique<Loading>(source, config, cpu);
  }
  Model model = loading->load(tensors);
  model.device_note = note;
  return model;
}

int64_t Model::fitting_positions(WeightSource& source, const ModelConfig& config,
                                 const LoadOptions& options) {
  const int64_t least = choose_positions(config, 0), most = most_positions(config);
  if (most <= least) return least;
  if (options.device.cuda && options.gpu_layers != 0)
    return positions_on_gpu(source, config, options, least, most);
  return std::clamp(positions_on_host(source, config, options.cache), least, most);
}

Model Model::load_parts(WeightSource& source, const ModelConfig& config, const LoadOptions& options,
                        const LayerSplit& split) {
  return Loading(source, config, options, split).load(check_names(source, config));
}

Model Model::load_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options) {
  return Loading(source, part, options).load(0);
}

void Model::check_part(WeightSource& source, const ModelConfig& part, const LoadOptions& options) {
  Loading(source, part, options);
}

}  // namespace walsh
