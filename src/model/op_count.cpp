#include "model/op_count.h"

#include <algorithm>
#include <bit>

#include "formats/product.h"
#include "formats/tensor.h"
#include "formats/trellis.h"

namespace walsh {
namespace {

uint64_t count(int64_t n) {
  return static_cast<uint64_t>(n);
}

OpCount count_scalar_pass(const ScalarCode& code, int64_t rows, int64_t padded, int planes) {
  const uint64_t weights = count(rows * padded);
  const int64_t per_row =
      code.sub_group != 0 ? sub_groups_per_row(code, padded) : groups_per_row(code, padded);
  uint64_t scales = count(rows * per_row);
  if (code.has_offset) scales += count(rows * groups_per_row(code, padded));
  OpCount ops;
  ops.multiplications = ops.additions = (weights + scales) * count(planes);
  ops.lookups = code.bits == 8 ? 0 : weights;
  return ops;
}

OpCount count_trellis(const TrellisCode& code, int64_t rows, int64_t padded, int planes) {
  const int64_t stored_rows = tile_rows(rows) * kTileRows;
  const uint64_t weights = count(stored_rows * padded);
  const uint64_t scales = count(stored_rows * column_blocks(padded));
  OpCount ops;
  const uint64_t steps = weights / count(code.values);
  ops.lookups = code.rule == TrellisRule::table       ? steps
                : code.rule == TrellisRule::quantiles ? weights
                                                      : 0;
  ops.multiplications = ops.additions = (weights + scales) * count(planes);
  ops.multiplications += steps;
  if (code.rule == TrellisRule::bytes) ops.additions += weights;
  if (!code.block_scales) ops.multiplications += count(stored_rows);
  return ops;
}

OpCount count_lookup(const ProductCode& code, int64_t rows, int64_t padded, int planes) {
  const uint64_t vectors = count(padded / kProductValues);
  const uint64_t scales = count(rows * product_groups(code, padded));
  const uint64_t products = vectors * kProductEntries;
  OpCount ops;
  ops.multiplications = (products * kProductValues + scales) * count(planes);
  ops.lookups = count(rows) * vectors * count(planes);
  ops.additions = (products * (kProductValues - 1) + count(rows * padded) + scales) * count(planes);
  ops.additions += ops.lookups;
  return ops;
}

OpCount count_linear(const Linear& linear, const Input& input) {
  int planes = 1;
  OpCount ops;
  if (!linear.is_dense()) planes = input.forms[static_cast<size_t>(linear.input[0])].planes;
  ops += count_product(*linear.format, linear.rows, linear.cols, planes);
  ops.additions += linear.bias.size();
  if (linear.output != nullptr) ops += count_transform(linear.output->rotation(), linear.rows);
  return ops;
}

OpCount count_forms(const Input& input) {
  OpCount ops;
  for (const PreparedInput& form : input.forms) {
    if (form.transform.rotator != nullptr)
      ops += count_transform(form.transform.rotator->rotation(), form.transform.cols);
  }
  return ops;
}

}  // namespace

OpCount& OpCount::operator+=(const OpCount& other) {
  multiplications += other.multiplications;
  additions += other.additions;
  lookups += other.lookups;
  transforms += other.transforms;
  return *this;
}

OpCount count_product(const Format& format, int64_t rows, int64_t cols, int planes) {
  planes = std::max(planes, 1);
  const int64_t padded = padded_cols(format, cols);
  OpCount ops;
  switch (format.kind) {
    case CodeKind::none:
      ops.multiplications = ops.additions = count(rows * cols);
      break;
    case CodeKind::scalar:
      for (int pass = 0; pass < format.passes; ++pass)
        ops += count_scalar_pass(format.code[pass], rows, padded, planes);
      break;
    case CodeKind::trellis:
      ops = count_trellis(format.trellis, rows, padded, planes);
      break;
    case CodeKind::product:
      ops = count_lookup(format.product, rows, padded, planes);
      break;
  }
  return ops;
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

namespace {

OpCount count_layer_of_part(const Model& model, int64_t index) {
  const Layer& layer = model.layers[static_cast<size_t>(index)];
  const LayerDesc& desc = model.config.layers[static_cast<size_t>(index)];
  const ExpertsDesc& experts = desc.experts;
  OpCount ops;
  for (const Input& input : layer.inputs)
    ops += count_forms(input);
  for (size_t i = 0; i < layer.matrices.size(); ++i) {
    if (!desc.of_one_token(desc.matrices[i])) continue;
    const Input& input = layer.input(desc.matrices[i].input);
    ops += count_linear(layer.matrices[i], input);
    const bool own_input = experts.present() && desc.matrices[i].expert > 0 &&
                           static_cast<int>(i) == experts.down(desc.matrices[i].expert);
    if (own_input) ops += count_forms(input);
  }
  return ops;
}

}  // namespace

OpCount count_layer(const Model& model, int64_t index) {
  OpCount ops;
  for (const Model& part : model.all_parts())
    ops += count_layer_of_part(part, index);
  return ops;
}

OpCount count_head(const Model& whole) {
  const Model& model = whole.all_parts().back();
  OpCount ops = count_forms(model.head_input);
  ops += count_linear(model.head, model.head_input);
  return ops;
}

OpCount count_embedding(const Model& whole) {
  const Model& model = whole.all_parts().front();
  OpCount ops;
  const Format& format = *model.embedding.format;
  for (int pass = 0; pass < format.passes; ++pass)
    ops +=
        count_transform(model.embedding.rotation[pass], padded_cols(format, model.embedding.cols));
  return ops;
}

}  // namespace walsh
