#include "model/cuda/linear.h"

#include <algorithm>

#include "base/checked.h"
#include "kernels/cuda/weight_side/weight_side.h"

namespace walsh {
namespace {

using cuda::InputForm;
using cuda::InputSource;
using cuda::kMaxVectors;
using cuda::kWeightSideVectors;

constexpr int64_t kRowAlignment = 64;  // Rows begin at multiples of 64 16-bit elements (128 bytes).
// cuBLASLt multiplies plain weights faster for more vectors than this; its time hardly grows up to
// 64.
constexpr int64_t kDenseVectors = 2;
constexpr uint64_t kMaxScratch = uint64_t{1} << 30;  // Larger matrices are multiplied in slices.
// The head, which would need the most, is cut into this many rows.
constexpr int64_t kHeadSlice = 4096;
constexpr int64_t kActivationBlock = cuda::kPaddedColumns;

// Returns the source moved forward by `first` rows.
CudaSource from_row(const CudaSource& source, int64_t first) {
  CudaSource moved = source;
  moved.rows.x += first * source.rows.ldx;
  if (moved.rows.up != nullptr) moved.rows.up += first * source.rows.ldx;
  if (moved.gates.present()) moved.gates.gate += first * source.gates.ld;
  return moved;
}

CudaMatmul from_row(const CudaMatmul& item, int64_t first) {
  CudaMatmul moved = item;
  moved.y += first * item.ldy;
  return moved;
}

const float* bias_of(const CudaWeights& weights) {
  return weights.bias.empty() ? nullptr : weights.bias.as<float>();
}

// Prepares all forms of m rows. One launch makes two forms.
void prepare(const CudaSource& source, std::span<const InputForm> forms, int64_t m,
             cuda::Stream stream) {
  for (size_t i = 0; i < forms.size(); i += cuda::kMaxForms) {
    const auto some = forms.subspan(i, std::min<size_t>(cuda::kMaxForms, forms.size() - i));
    if (source.gates.present()) {
      cuda::prepare(source.rows, source.gates, some, m, stream);
    } else {
      cuda::prepare(source.rows, some, m, stream);
    }
  }
}

// Describes the product that `item` names for the kernel of rows.
cuda::RowMatmul row_matmul(const CudaMatmul& item) {
  const CudaWeights& weights = cuda_weights(*item.linear);
  cuda::RowMatmul product;
  if (item.linear->is_dense()) product.dense = &weights.dense;
  for (size_t pass = 0; pass < weights.pass.size(); ++pass) {
    product.pass[pass] = &weights.pass[pass];
    product.rotation[pass] = weights.rotation[pass];
  }
  product.cols = weights.padded;
  product.bias = bias_of(weights);
  product.y = item.y;
  product.ldy = item.ldy;
  product.add = item.add;
  return product;
}

}  // namespace

CudaLinear::Extent CudaLinear::extent(const CudaSizes& sizes, int64_t max_rows) {
  Extent extent;
  const bool exact = sizes.activations == ActivationMode::f16;
  const bool library = cuda::DequantizedGemm::unavailable_reason().empty();
  bool dense = false;
  int64_t shortest = cuda::kMaxRowsFrom;
  each_common_matrix(sizes, [&](const MatrixDesc& m, const MatrixForm& form, bool is_head) {
    if (form.by_head) return;
    const Format& format = *form.stored.format;
    const int64_t cols = padded_cols(format, m.cols);
    extent.stride = std::max(extent.stride, round_up(cols, kRowAlignment));
    if (format.dense) {
      dense = true;
      if (format.dtype == DType::f32) extent.row_bytes = 4;
    } else if (sizes.rotate_weights && is_rotated(form.stored)) {
      extent.rows = true;
    } else {
      shortest = std::min(shortest, cuda::rows_from(format));
      const int64_t rows = is_head ? std::min(m.rows, kHeadSlice) : m.rows;
      extent.scratch = std::max(extent.scratch, cuda::DequantizedGemm::scratch_for(rows, cols));
    }
  });
  extent.scratch = std::min(extent.scratch, kMaxScratch);
  const bool long_prompts = max_rows >= shortest || (dense && max_rows > kDenseVectors);
  extent.prompts = exact || (library && long_prompts);
  extent.rows |= extent.prompts;
  if (!extent.prompts) extent.scratch = 0;
  constexpr int64_t kMostQuantized = std::max(cuda::kMaxRowsFrom, cuda::kMaxBatch);
  extent.quantized_rows = extent.prompts ? std::min(max_rows, kMostQuantized) : max_rows;
  if (exact) extent.quantized_rows = 0;
  return extent;
}

CudaLinear::CudaLinear(const CudaSizes& sizes, int64_t max_rows)
    : extent_(extent(sizes, max_rows)),
      exact_(sizes.activations == ActivationMode::f16),
      rotate_weights_(false),
      float_rows_(static_cast<uint64_t>(kMaxVectors * extent_.stride) * sizeof(float)) {
  each_common_matrix(sizes, [&](const MatrixDesc&, const MatrixForm& form, bool) {
    rotate_weights_ |= sizes.rotate_weights && !form.by_head && is_rotated(form.stored);
  });
  for (const BufferShape& shape : sizes.steps.buffers) {
    cuda::Activations& buffer = quantized_.emplace_back();
    if (shape.planes == 0 || extent_.quantized_rows == 0) continue;
    buffer = cuda::Activations(extent_.quantized_rows, round_up(shape.cols, kActivationBlock),
                               shape.group, shape.planes);
  }
  make_batch_space();
  if (extent_.rows)
    rows_ = cuda::Buffer(static_cast<uint64_t>(max_rows * extent_.stride * extent_.row_bytes));
  if (!extent_.prompts) return;
  gemm_ = std::make_unique<cuda::DequantizedGemm>(extent_.scratch);
}

void CudaLinear::make_batch_space() {
  const int64_t rows = std::min(extent_.quantized_rows, cuda::kMaxBatch);
  if (rows <= kMaxVectors || !cuda::BatchSpace::is_supported()) return;
  int64_t cols = 0;
  int planes = 1;
  for (const cuda::Activations& buffer : quantized_) {
    if (buffer.group != cuda::kChunkColumns || buffer.q.empty()) continue;
    cols = std::max(cols, buffer.cols);
    planes = std::max(planes, buffer.planes);
  }
  if (cols > 0) batch_ = cuda::BatchSpace(rows, cols, planes);
}

bool CudaLinear::in_batch(const Input& input, const Linear& linear, int64_t m) const {
  if (exact_ || batch_.empty() || m > cuda::kMaxBatch) return false;
  const CudaWeights& weights = cuda_weights(linear);
  cuda::Matmul product;
  for (size_t pass = 0; pass < weights.pass.size(); ++pass) {
    const PreparedInput& form = input.forms[static_cast<size_t>(linear.input[pass])];
    product.pass[pass] = &weights.pass[pass];
    product.input[pass] = &quantized_[static_cast<size_t>(form.buffer)];
  }
  return batch_.can_multiply(product, m);
}

bool CudaLinear::is_in_front(const Linear& linear, int64_t m) {
  return linear.is_dense() && linear.format->dtype == DType::f32 && m <= kMaxVectors &&
         linear.rows <= cuda::kMostFrontRows && linear.cols <= cuda::kMostFrontColumns;
}

// Small plain products are computed in the launch that prepares the inputs of coded ones or of a
// front. Beside other plain products they join the launches of these.
void CudaLinear::multiply(const Input& input, const CudaSource& source,
                          std::span<const CudaMatmul> items, int64_t m, cuda::Stream stream,
                          const CudaFront* front) {
  std::vector<CudaMatmul> small_items, coded_items, dense_items, row_items, rotating_items;
  for (const CudaMatmul& item : items) {
    if (rotate_weights_ && is_rotated(cuda_weights(*item.linear))) {
      rotating_items.push_back(item);
      continue;
    }
    const bool is_dense = item.linear->is_dense();
    if (!item.add && !source.gates.present() && is_in_front(*item.linear, m)) {
      small_items.push_back(item);
      continue;
    }
    const bool many = is_dense ? m > kDenseVectors
                               : exact_ || (m >= cuda::rows_from(*item.linear->format) &&
                                            !in_batch(input, *item.linear, m));
    (many && gemm_ ? row_items : is_dense ? dense_items : coded_items).push_back(item);
  }
  if (front == nullptr && coded_items.empty()) {
    auto& plain = m > kDenseVectors && gemm_ ? row_items : dense_items;
    plain.insert(plain.end(), small_items.begin(), small_items.end());
    small_items.clear();
  }
  const Coded made = describe(input, coded_items);
  if (!small_items.empty() || source.gates.present() || m <= kMaxVectors ||
      !batch_.prepare_and_multiply(source.rows, made.forms, made.products, m, stream)) {
    if (!small_items.empty()) {
      in_front(source, small_items, made.forms, front, m, stream);
    } else {
      prepare(source, made.forms, m, stream);
    }
    if (!coded_items.empty()) coded(made, m, stream);
  }
  for (int64_t row = 0; !dense_items.empty() && row < m; row += kMaxVectors) {
    std::vector<CudaMatmul> slice;
    for (const CudaMatmul& item : dense_items)
      slice.push_back(from_row(item, row));
    dense(from_row(source, row), slice, std::min(kMaxVectors, m - row), stream);
  }
  if (!row_items.empty()) rows(source, row_items, m, stream);
  if (!rotating_items.empty()) weight_side(source, rotating_items, m, stream);
}

void CudaLinear::in_front(const CudaSource& source, std::span<const CudaMatmul> items,
                          std::span<const InputForm> forms, const CudaFront* front, int64_t m,
                          cuda::Stream stream) {
  std::vector<InputForm> all(forms.begin(), forms.end());
  if (front != nullptr) all.insert(all.end(), front->forms.begin(), front->forms.end());
  const std::span<const InputForm> made(all);
  const size_t here = std::min<size_t>(all.size(), cuda::kMostFrontForms);
  std::vector<cuda::FrontProduct> products;
  for (const CudaMatmul& item : items) {
    const CudaWeights& weights = cuda_weights(*item.linear);
    products.push_back({weights.dense.data.as<const float>(), bias_of(weights), item.y, item.ldy,
                        item.linear->rows});
  }
  cuda::FrontCall call;
  call.source = source.rows;
  call.forms = made.first(here);
  if (front != nullptr) call.route = front->route;
  call.m = m;
  const std::span<const cuda::FrontProduct> each(products);
  for (size_t i = 0; i < products.size(); i += cuda::kMostFrontProducts) {
    call.products =
        each.subspan(i, std::min<size_t>(cuda::kMostFrontProducts, products.size() - i));
    cuda::front(call, stream);
    call.forms = {};
    call.route = nullptr;
  }
  prepare(source, made.subspan(here), m, stream);
}

CudaLinear::Coded CudaLinear::describe(const Input& input, std::span<const CudaMatmul> items) {
  Coded coded;
  std::vector<bool> made(input.forms.size());
  for (const CudaMatmul& item : items) {
    const CudaWeights& weights = cuda_weights(*item.linear);
    cuda::Matmul& product = coded.products.emplace_back();
    for (size_t pass = 0; pass < weights.pass.size(); ++pass) {
      const auto index = static_cast<size_t>(item.linear->input[pass]);
      const PreparedInput& form = input.forms[index];
      cuda::Activations& buffer = quantized_[static_cast<size_t>(form.buffer)];
      product.pass[pass] = &weights.pass[pass];
      product.input[pass] = &buffer;
      if (made[index]) continue;
      made[index] = true;
      InputForm& to = coded.forms.emplace_back();
      to.rotation = weights.rotation[pass];
      to.padded = form.transform.cols;
      to.out = &buffer;
    }
    product.bias = bias_of(weights);
    product.y = item.y;
    product.ldy = item.ldy;
    product.add = item.add;
  }
  return coded;
}

void CudaLinear::coded(const Coded& coded, int64_t m, cuda::Stream stream) {
  if (m <= kMaxVectors) {
    cuda::gemv(std::span<const cuda::Matmul>(coded.products), m, stream);
  } else {
    cuda::int8_gemm(coded.products, m, stream, batch_);
  }
}

bool CudaLinear::add_to(cuda::PersistentProgram& program, const Input& input,
                        const InputSource& source, std::span<const CudaMatmul> items) {
  if (exact_) return false;
  for (const CudaMatmul& item : items) {
    const CudaWeights& weights = cuda_weights(*item.linear);
    if (item.linear->is_dense() || (rotate_weights_ && is_rotated(weights))) return false;
  }
  const Coded coded = describe(input, items);
  return program.multiply(source, coded.forms, coded.products);
}

void CudaLinear::dense(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
                       cuda::Stream stream) {
  InputForm form;
  form.rotation.kind = RotationKind::none;
  form.padded = source.rows.width;
  form.rows = float_rows_.as();
  form.stride = extent_.stride;
  prepare(source, {&form, 1}, m, stream);
  std::vector<cuda::DenseMatmul> products;
  for (const CudaMatmul& item : items) {
    const CudaWeights& weights = cuda_weights(*item.linear);
    products.push_back({&weights.dense, float_rows_.as<float>(), extent_.stride, bias_of(weights),
                        item.y, item.ldy, item.add});
  }
  cuda::gemv(std::span<const cuda::DenseMatmul>(products), m, stream);
}

// Multiplies rows in the 16-bit type that the weights need: f16 for coded ones, or bf16 where no
// norm bounds the input.
void CudaLinear::rows(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
                      cuda::Stream stream) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<CudaMatmul> chosen;
    for (const CudaMatmul& item : items) {
      const DType coded = source.rows.gain != nullptr ? DType::f16 : DType::bf16;
      const DType wanted = item.linear->is_dense() ? item.linear->format->dtype : coded;
      if (wanted == type) chosen.push_back(item);
    }
    if (!chosen.empty()) rows_of_type(type, source, chosen, m, stream);
  }
}

// Writes the source to rows of this type, in the original basis. Returns the products that read
// them.
std::vector<cuda::RowMatmul> CudaLinear::prepare_rows(const CudaSource& source,
                                                      std::span<const CudaMatmul> items, void* to,
                                                      DType type, int64_t m, cuda::Stream stream) {
  InputForm form;
  form.rotation.kind = RotationKind::none;
  form.rows = to;
  form.stride = extent_.stride;
  form.row_type = type;
  std::vector<cuda::RowMatmul> products;
  for (const CudaMatmul& item : items) {
    products.push_back(row_matmul(item));
    form.padded = std::max(form.padded, products.back().cols);
  }
  prepare(source, {&form, 1}, m, stream);
  return products;
}

void CudaLinear::rows_of_type(DType type, const CudaSource& source,
                              std::span<const CudaMatmul> items, int64_t m, cuda::Stream stream) {
  const auto products = prepare_rows(source, items, rows_.as(), type, m, stream);
  gemm_->multiply(products, {rows_.as(), extent_.stride, type, cuda::Basis::original}, m, stream);
}

void CudaLinear::weight_side(const CudaSource& source, std::span<const CudaMatmul> items, int64_t m,
                             cuda::Stream stream) {
  const bool vectors = m <= kWeightSideVectors;
  void* rows = vectors ? float_rows_.as() : rows_.as();
  const DType type = vectors ? DType::f32 : DType::bf16;
  const auto products = prepare_rows(source, items, rows, type, m, stream);
  cuda::multiply_weight_side(products, {rows, extent_.stride, type}, m, stream);
}

}  // namespace walsh
