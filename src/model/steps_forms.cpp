// Finds how matrices are stored and which forms of inputs they read. The result is the same before
// and after a model is loaded.
#include <algorithm>
#include <set>

#include "codec/cuda/matrix_code.h"
#include "model/model.h"
#include "model/steps.h"

namespace walsh {
namespace {

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

Rotation canonical(const Rotation& rotation) {
  return rotation.kind == RotationKind::none ? kNoRotation : rotation;
}

// Finds the forms of inputs, and assigns the buffers that they are written to.
class FormFinder {
 public:
  FormFinder(const WeightSource& source, const LoadOptions& options, ModelSteps& steps)
      : source_(source), options_(options), steps_(steps) {}

  void find(const MatrixDesc& m, Input& input, MatrixForm& matrix) {
    if (!source_.contains(m.weight)) return;
    matrix.stored = source_.form_of(m.weight);
    StoredForm& stored = matrix.stored;
    // GPUs hold the plain matrices of routers and decays as float32.
    if (m.plain && stored.format->dense && options_.device.cuda) stored.format = &get_format("f32");
    if (matrix.by_head) return;
    if (stored.format->dense) {
      PreparedInput form;
      form.transform = {nullptr, m.cols, m.cols};
      matrix.input[0] = add(input, form);
    }
    for (int pass = 0; pass < stored.format->passes; ++pass) {
      const BufferShape shape = prepared_shape(stored, pass, m.cols, source_.folded(), options_);
      PreparedInput form;
      form.transform = {nullptr, m.cols, shape.cols};
      form.rotation = canonical(stored.rotation[pass]);
      form.planes = shape.planes;
      form.group = shape.group;
      matrix.input[pass] = add(input, form);
    }
  }

 private:
  // Returns the index of a form in its input, to which it is added if it is new.
  int add(Input& input, PreparedInput form) {
    std::set<int> taken;
    for (size_t i = 0; i < input.forms.size(); ++i) {
      const PreparedInput& f = input.forms[i];
      if (f.rotation == form.rotation && f.transform.cols == form.transform.cols &&
          f.planes == form.planes)
        return static_cast<int>(i);
      taken.insert(f.buffer);
    }
    form.buffer = find_buffer({form.transform.cols, form.planes, form.group}, taken);
    input.forms.push_back(form);
    return static_cast<int>(input.forms.size()) - 1;
  }

  int find_buffer(const BufferShape& shape, const std::set<int>& taken) {
    for (size_t i = 0; i < steps_.buffers.size(); ++i) {
      const int index = static_cast<int>(i);
      if (steps_.buffers[i] == shape && !taken.contains(index)) return index;
    }
    steps_.buffers.push_back(shape);
    return static_cast<int>(steps_.buffers.size()) - 1;
  }

  const WeightSource& source_;
  const LoadOptions& options_;
  ModelSteps& steps_;
};

}  // namespace

bool is_rotated(const StoredForm& form) {
  for (int pass = 0; pass < form.format->passes; ++pass)
    if (form.rotation[pass].kind != RotationKind::none) return true;
  return false;
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
    const bool large = options.device.cuda && !cuda::has_small_groups(format, pass);
    shape.group = in_rotated_basis || large ? kActivationGroup : kPlainGroup;
  }
  return shape;
}

ModelSteps make_steps(const ModelConfig& config, const WeightSource& source,
                      const LoadOptions& options) {
  ModelSteps steps = make_steps(config);
  FormFinder finder(source, options, steps);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerDesc& desc = config.layers[i];
    LayerSteps& layer = steps.layers[i];
    for (size_t m = 0; m < desc.matrices.size(); ++m)
      finder.find(desc.matrices[m], layer.inputs[static_cast<size_t>(desc.matrices[m].input)],
                  layer.matrices[m]);
  }
  if (!config.head.weight.empty())
    finder.find(config.head, steps.head.inputs[0], steps.head.matrices[0]);
  if (source.contains(config.embedding)) steps.embedding = source.form_of(config.embedding);
  if (config.layer_embedding.present() && source.contains(config.layer_embedding.weight))
    steps.layer_embedding = source.form_of(config.layer_embedding.weight);
  return steps;
}

}  // namespace walsh
