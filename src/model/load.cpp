#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "arch/plan.h"
#include "model/model.h"
#include "model/placement.h"
#include "model/positions.h"
#include "model/support.h"

namespace walsh {

// Brings the tensors of a source into a Model, one after the other.
class ModelLoader {
 public:
  ModelLoader(WeightSource& source, const ModelConfig& config, const LoadOptions& options)
      : source_(source), options_(options), placement_(make_placement(options.device)) {
    model_.config = config;
    model_.device = options.device;
    model_.activations = options.activations;
    model_.rotate_weights = options.rotate_weights;
    model_.cache = options.cache;
    model_.pool_ = options.pool;
  }

  // What can be refused before a tensor is read.
  void prepare() {
    check_names();
    choose_positions(model_.config, options_.use.max_positions);
    model_.device_spare = placement_->plan(source_, model_.config, options_);
  }

  Model load() {
    if (options_.device.cuda) source_.encode_on(options_.device);
    const ModelConfig& c = model_.config;
    load_embedding();
    for (const LayerDesc& layer : c.layers)
      load_layer(layer);
    load_norm(c.head_input, model_.head_input);
    load_matrix(c.head, model_.head_input, model_.head);
    placement_->finish();
    return std::move(model_);
  }

 private:
  // Both directions: what the config wants is there, what is there is part of the function.
  void check_names() {
    std::set<std::string> wanted;
    for (const TensorShape& tensor : model_tensors(model_.config)) {
      if (!source_.contains(tensor.name)) fail(tensor.name, "missing, but the config asks for it");
      wanted.insert(tensor.name);
    }
    total_ = wanted.size();
    const ModelPlan plan = make_plan(model_.config);
    const std::set<std::string> ignored(plan.ignored.begin(), plan.ignored.end());
    for (const std::string& name : source_.names()) {
      if (!wanted.contains(name) && !ignored.contains(name))
        fail(name, "unexpected: not part of a " + model_.config.family + " model of this config");
    }
  }

  [[noreturn]] void fail(const std::string& name, const std::string& reason) const {
    throw Error(ErrorCode::bad_input, source_.path() + ": tensor " + name, reason);
  }

  Tensor tensor(const std::string& name, int64_t rows, int64_t cols) {
    if (options_.progress) options_.progress(std::min(done_, total_), total_, name);
    ++done_;
    Tensor result = source_.load(name);
    if (result.rows != rows || result.cols != cols) {
      fail(name, fmt::format("shape is [{}, {}], expected [{}, {}]", result.rows, result.cols, rows,
                             cols));
    }
    return result;
  }

  // The gain of a norm; nothing if there is no such norm.
  std::vector<float> gain(const NormDesc& norm) {
    std::vector<float> values = vector(norm.weight, norm.width);
    for (float& value : values)
      value += norm.gain_offset;
    return values;
  }

  void load_norm(const ActivationDesc& activation, Input& input) {
    input.gain = gain(activation.norm);
    input.eps = activation.norm.eps;
  }

  // A norm or a bias as float32; nothing for an empty name.
  std::vector<float> vector(const std::string& name, int64_t size) {
    return name.empty() ? std::vector<float>() : values(name, 1, size);
  }

  // What is no matrix that an activation is multiplied with, as float32.
  std::vector<float> values(const std::string& name, int64_t rows, int64_t cols) {
    const Tensor stored = tensor(name, rows, cols);
    if (!stored.format->dense) fail(name, "a vector in a coded format");
    std::vector<float> result(static_cast<size_t>(rows * cols));
    decode_rows(stored, 0, rows, result.data());
    model_.other_bytes_ += tensor_bytes(*stored.format, rows, cols);
    return result;
  }

  void load_embedding() {
    const ModelConfig& c = model_.config;
    model_.embedding = tensor(c.embedding, c.vocab, c.hidden);
    for (int pass = 0; pass < model_.embedding.format->passes; ++pass) {
      model_.embedding_rotators_.push_back(
          rotator(model_.embedding.rotation[pass], model_.embedding_scratch()));
    }
    model_.device_embedding = placement_->place_embedding(model_.embedding);
  }

  void load_layer(const LayerDesc& desc) {
    Layer& layer = model_.layers.emplace_back();
    for (const ActivationDesc& activation : desc.activations)
      load_norm(activation, layer.inputs.emplace_back());
    layer.q_norm = gain(desc.attention.q_norm);
    layer.k_norm = gain(desc.attention.k_norm);
    layer.after_attention = gain(desc.after_attention);
    layer.after_mlp = gain(desc.after_mlp);
    if (desc.delta_net.present()) load_delta_net(desc.delta_net, layer.delta_net);
    layer.sinks = vector(desc.attention.sinks, desc.attention.heads);
    layer.choice_bias = vector(desc.experts.routing.bias, desc.experts.count);
    for (const MatrixDesc& m : desc.matrices)
      load_matrix(m, layer.inputs[static_cast<size_t>(m.input)], layer.matrices.emplace_back());
  }

  void load_delta_net(const DeltaNetDesc& desc, DeltaNetWeights& weights) {
    const std::vector<float> rows = values(desc.convolution, desc.channels(), desc.taps);
    weights.taps.resize(rows.size());
    for (int64_t c = 0; c < desc.channels(); ++c) {
      for (int64_t t = 0; t < desc.taps; ++t) {
        weights.taps[static_cast<size_t>(t * desc.channels() + c)] =
            rows[static_cast<size_t>(c * desc.taps + t)];
      }
    }
    weights.rate = vector(desc.rate, desc.value_heads);
    for (float& rate : weights.rate)
      rate = std::exp(rate);
    weights.bias = vector(desc.bias, desc.value_heads);
    weights.norm = gain(desc.norm);
    const auto dim = static_cast<float>(desc.key_dim);
    weights.query_scale.assign(static_cast<size_t>(desc.key_dim), 1 / dim);
    weights.key_scale.assign(static_cast<size_t>(desc.key_dim), 1 / std::sqrt(dim));
  }

  void load_matrix(const MatrixDesc& m, Input& input, Linear& linear) {
    const bool tied = m.weight == model_.config.embedding;
    Tensor stored = tied ? model_.embedding : tensor(m.weight, m.rows, m.cols);
    linear.rows = m.rows;
    linear.cols = m.cols;
    linear.format = stored.format;
    linear.bias = vector(m.bias, m.rows);
    linear.output = output_rotator(m.weight, m.rows);
    if (stored.format->dense) {
      linear.input[0] = add_form(input, {{nullptr, m.cols, m.cols}, 0, 0, 0});
    }
    for (int pass = 0; pass < stored.format->passes; ++pass)
      linear.input[pass] = add_form(input, coded_form(stored, pass));
    placement_->place(linear, std::move(stored), m);
    const bool in_use = linear.is_dense() && !model_.device.cuda;
    if (!tied && !in_use) source_.release(m.weight);
  }

  PreparedInput coded_form(const Tensor& stored, int pass) {
    PreparedInput form;
    const int64_t padded = padded_cols(*stored.format, stored.cols);
    form.transform = {rotator(stored.rotation[pass], padded), stored.cols, padded};
    const BufferShape shape =
        prepared_shape({stored.format, {stored.rotation[0], stored.rotation[1]}, kNoRotation}, pass,
                       stored.cols, source_.folded(), options_);
    form.planes = shape.planes;
    form.group = shape.group;
    return form;
  }

  const Rotator* output_rotator(const std::string& name, int64_t rows) {
    return rotator(source_.form_of(name).output, rows);
  }

  // The one rotator for equal rotations of equal length; null for none.
  const Rotator* rotator(const Rotation& rotation, int64_t k) {
    if (rotation.kind == RotationKind::none) return nullptr;
    for (const auto& known : model_.rotators_) {
      if (known->size() == k && known->rotation() == rotation) return known.get();
    }
    model_.rotators_.push_back(std::make_unique<Rotator>(rotation, k));
    return model_.rotators_.back().get();
  }

  // Index of the form within the site, which it joins if it is new.
  int add_form(Input& input, PreparedInput form) {
    std::set<int> taken;
    for (size_t i = 0; i < input.forms.size(); ++i) {
      const PreparedInput& f = input.forms[i];
      if (f.transform.rotator == form.transform.rotator &&
          f.transform.cols == form.transform.cols && f.planes == form.planes) {
        return static_cast<int>(i);
      }
      taken.insert(f.buffer);
    }
    form.buffer = find_buffer({form.transform.cols, form.planes, form.group}, taken);
    input.forms.push_back(form);
    return static_cast<int>(input.forms.size()) - 1;
  }

  int find_buffer(const BufferShape& shape, const std::set<int>& taken) {
    for (size_t i = 0; i < model_.buffers.size(); ++i) {
      const int index = static_cast<int>(i);
      if (model_.buffers[i] == shape && !taken.contains(index)) return index;
    }
    model_.buffers.push_back(shape);
    return static_cast<int>(model_.buffers.size()) - 1;
  }

  WeightSource& source_;
  const LoadOptions& options_;
  std::unique_ptr<Placement> placement_;
  Model model_;
  size_t done_ = 0, total_ = 0;
};

namespace {

bool is_supported(const WeightSource& source, const ModelConfig& config,
                  const LoadOptions& options) {
  try {
    refuse_unsupported(source, config, options);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

Model Model::load(WeightSource& source, const ModelConfig& config, const LoadOptions& options) {
  if (options.pool == nullptr) {
    throw Error(ErrorCode::internal, source.path(), "Model::load needs a thread pool");
  }
  std::unique_ptr<ModelLoader> loader;
  LoadOptions cpu = options;
  cpu.device = {};
  std::string note;
  try {
    refuse_unsupported(source, config, options);
    loader = std::make_unique<ModelLoader>(source, config, options);
    loader->prepare();
  } catch (const Error& e) {
    const bool refused = e.code() == ErrorCode::usage || e.code() == ErrorCode::limit;
    if (!refused || !options.device.cuda || !options.may_use_cpu) throw;
    if (!is_supported(source, config, cpu)) throw;
    note = options.device.name() + " is not used, but the CPU: " + e.what();
    loader = std::make_unique<ModelLoader>(source, config, cpu);
    loader->prepare();
  }
  Model model = loader->load();
  model.device_note = note;
  return model;
}

}  // namespace walsh
