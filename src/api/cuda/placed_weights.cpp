#include "api/cuda/placed_weights.h"

#include "base/checked.h"
#include "kernels/cuda/weights/dequantize.h"
#include "kernels/cuda/weights/matrix.h"

namespace walsh {

PlacedWeights::PlacedWeights(const LayerForm& layer_form)
    : form(layer_form), padded(padded_cols(*form.format, form.cols)) {
  for (int p = 0; p < form.format->passes; ++p)
    pass.push_back(cuda::allocate_matrix(*form.format, p, form.rows, form.cols));
}

void PlacedWeights::fill(const Tensor& stored, cuda::Uploader& uploader,
                         cuda::Buffer& staging) const {
  for (size_t p = 0; p < pass.size(); ++p)
    cuda::fill_matrix(pass[p], stored, static_cast<int>(p), uploader, staging);
}

int PlacedWeights::group(size_t p) const {
  const bool small = form.rotation[p].kind == RotationKind::none &&
                     cuda::has_small_groups(*form.format, static_cast<int>(p));
  return small ? kPlainGroup : kActivationGroup;
}

int64_t PlacedWeights::quantized_cols() const {
  return round_up(padded, int64_t{cuda::kPaddedColumns});
}

uint64_t PlacedWeights::bytes() const {
  uint64_t sum = 0;
  for (const cuda::Matrix& matrix : pass)
    sum += matrix.bytes();
  return sum;
}

void PlacedWeights::dequantize(DType type, void* out, cuda::Stream stream) const {
  cuda::RowMatmul weights;
  for (size_t p = 0; p < pass.size(); ++p) {
    weights.pass[p] = &pass[p];
    weights.rotation[p] = form.rotation[p];
  }
  weights.cols = padded;
  cuda::dequantize(weights, cuda::Basis::original, type, 0, form.rows, out, stream);
}

}  // namespace walsh
