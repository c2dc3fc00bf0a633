#include "model/op_count.h"

#include <algorithm>
#include <bit>

#include "codec/codec.h"

namespace walsh {
namespace {

uint64_t count_of(int64_t n) {
  return static_cast<uint64_t>(n);
}

OpCount count_forms(const Input& input) {
  OpCount ops;
  for (const PreparedInput& form : input.forms)
    ops += count_transform(form.rotation, form.transform.cols);
  return ops;
}

// Counts the steps of one layer of a part of a model.
class StepCount {
 public:
  StepCount(const std::vector<MatrixDesc>& matrices, const LayerSteps& layer)
      : matrices_(matrices), layer_(layer), made_(layer.inputs.size()) {}

  OpCount count(const Step& step) {
    return std::visit([this](const auto& s) { return count(s); }, step.op);
  }

 private:
  OpCount count(const step::Product& s) {
    OpCount ops = make(s.input);
    for (const step::Product::Output& output : s.outputs)
      ops += multiply(output.matrix);
    return ops;
  }
  // Every expert has its own input of down, so that is counted per expert.
  OpCount count(const step::Experts& s) {
    OpCount ops = make(s.input);
    ops += make(s.gated_input);
    for (int64_t e = 0; e < s.experts.chosen; ++e) {
      for (int matrix = s.experts.gate(e); matrix <= s.experts.down(e); ++matrix)
        ops += multiply(matrix);
      if (e > 0) ops += count_forms(layer_.inputs[static_cast<size_t>(s.gated_input)]);
    }
    return ops;
  }
  OpCount count(const step::MultiplyHeads& s) const {
    const MatrixDesc& desc = matrices_[static_cast<size_t>(s.matrix)];
    return count_product(get_format("f16"), desc.rows, desc.cols, 1);
  }
  OpCount count(const step::Logits&) {
    OpCount ops = make(0);
    ops += multiply(0);
    return ops;
  }
  template <typename Any>
  OpCount count(const Any&) const {
    return {};
  }

  // Counts each form of an input once per layer.
  OpCount make(int input) {
    const auto index = static_cast<size_t>(input);
    if (made_[index]) return {};
    made_[index] = true;
    return count_forms(layer_.inputs[index]);
  }

  OpCount multiply(int matrix) const {
    const auto index = static_cast<size_t>(matrix);
    const MatrixDesc& desc = matrices_[index];
    const MatrixForm& form = layer_.matrices[index];
    const Input& input = layer_.inputs[static_cast<size_t>(desc.input)];
    const int planes =
        form.stored.format->dense ? 1 : input.forms[static_cast<size_t>(form.input[0])].planes;
    OpCount ops = count_product(*form.stored.format, desc.rows, desc.cols, planes);
    if (!desc.bias.empty()) ops.additions += count_of(desc.rows);
    ops += count_transform(form.stored.output, desc.rows);
    return ops;
  }

  const std::vector<MatrixDesc>& matrices_;
  const LayerSteps& layer_;
  std::vector<bool> made_;  // It says which inputs have been counted.
};

}  // namespace

OpCount count_product(const Format& format, int64_t rows, int64_t cols, int planes) {
  return codec_of(format).count(format, rows, padded_cols(format, cols), std::max(planes, 1));
}

OpCount count_transform(const Rotation& rotation, int64_t size) {
  OpCount ops;
  if (rotation.kind == RotationKind::none) return ops;
  ops.transforms = 1;
  for (const Segment& segment : rotation_segments(size, rotation.block)) {
    const auto n = static_cast<uint64_t>(segment.size);
    if (rotation.kind == RotationKind::qr) {
      ops.multiplications += n * n;
      ops.additions += n * n;
    } else {
      ops.multiplications += n;
      ops.additions += n * static_cast<uint64_t>(std::countr_zero(n));
    }
  }
  return ops;
}

OpCount count_layer(const Model& model, int64_t index) {
  OpCount ops;
  for (const Model& part : model.all_parts()) {
    const auto i = static_cast<size_t>(index);
    StepCount layer(part.config.layers[i].matrices, part.steps.layers[i]);
    for (const Step& step : part.steps.layers[i].steps)
      ops += layer.count(step);
  }
  return ops;
}

OpCount count_head(const Model& whole) {
  const Model& model = whole.all_parts().back();
  const std::vector<MatrixDesc> matrices{model.config.head};
  StepCount head(matrices, model.steps.head);
  return head.count(model.steps.head.steps.front());
}

OpCount count_embedding(const Model& whole) {
  const Model& model = whole.all_parts().front();
  OpCount ops;
  for (const TokenTable* table : {&model.embedding, &model.layer_embedding}) {
    if (!table->present()) continue;
    const Tensor& stored = table->stored;
    for (int pass = 0; pass < stored.format->passes; ++pass)
      ops += count_transform(stored.rotation[pass], padded_cols(*stored.format, stored.cols));
  }
  if (model.config.layers.empty()) return ops;
  StepCount first(model.config.layers[0].matrices, model.steps.layers[0]);
  for (const Step& step : model.steps.embed)
    ops += first.count(step);
  return ops;
}

}  // namespace walsh
