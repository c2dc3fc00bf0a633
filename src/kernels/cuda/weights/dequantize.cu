// Dequantizes coded weights in row-major order.
#include "kernels/cuda/weights/dequantize.h"

#include <bit>
#include <string>

#include "kernels/cuda/weights/dequantize_kernel.cuh"

namespace walsh::cuda {
namespace detail {
namespace {

int shift_of(int64_t group, int64_t cols) {
  if (group >= cols) return 31;  // A row has one group.
  return std::countr_zero(static_cast<uint64_t>(group));
}

}  // namespace

void dequantize_halves(const RowMatmul& product, const PassView& first, const PassView& second,
                       const DequantizeTarget& target, Stream stream) {
  dequantize_to<uint16_t>(product, first, second, target, stream);
}

PassView pass_view(const RowMatmul& product, int pass, bool keep_rotated) {
  const Matrix& m = *product.pass[pass];
  const Rotation& rotation = product.rotation[pass];
  const bool rotated = rotation.kind != RotationKind::none && !keep_rotated;
  if (m.cols % kKTileColumns != 0 || product.cols % 32 != 0 || product.cols > m.cols ||
      (rotated && rotation.kind != RotationKind::hadamard)) {
    throw Error(ErrorCode::internal, "GPU weights",
                std::to_string(product.cols) + " of " + std::to_string(m.cols) +
                    " columns, rotation " + std::string(rotation_kind_name(rotation.kind)));
  }
  PassView view;
  view.codes = m.codes.as<const uint4>();
  view.scales = m.scales.as<const uint32_t>();
  view.offsets = m.offset_group != 0 ? m.offsets.as<const uint32_t>() : nullptr;
  view.k_tiles = static_cast<int>(m.cols / kKTileColumns);
  view.groups = static_cast<int>(m.groups());
  view.group_shift = shift_of(m.group, m.cols);
  if (m.offset_group != 0) {
    view.offset_groups = static_cast<int>((m.cols + m.offset_group - 1) / m.offset_group);
    view.offset_shift = shift_of(m.offset_group, m.cols);
  }
  if (!m.row_factors.empty()) {  // They are treated as offsets of a single group.
    view.offsets = m.row_factors.as<const uint32_t>();
    view.offset_groups = 1;
    view.offset_shift = shift_of(m.cols, m.cols);
  }
  view.level_low = m.code.low;
  view.level_high = m.code.high;
  view.unit = m.code.unit;
  view.table = m.table.as();
  view.cols = static_cast<int>(product.cols);
  if (rotated) {
    view.block = rotation.block;
    view.full_cols = view.cols / view.block * view.block;
    view.seed = rotation.seed;
    view.signs = rotation.signs;
  }
  return view;
}

}  // namespace detail

void dequantize(const RowMatmul& product, Basis basis, DType type, int64_t row_begin,
                int64_t row_end, void* out, Stream stream) {
  using namespace detail;
  const bool residual = product.pass[1] != nullptr;
  if (product.pass[0] == nullptr || (residual && basis == Basis::rotated) ||
      row_begin % kTileRows != 0 || row_begin < 0 || row_end > product.pass[0]->rows) {
    throw Error(ErrorCode::internal, "dequantize", "not a coded product, or rows out of range");
  }
  if (row_begin >= row_end) return;
  const bool keep = basis == Basis::rotated;
  const PassView first = pass_view(product, 0, keep);
  const PassView second = residual ? pass_view(product, 1, keep) : PassView();
  const DequantizeTarget target{out, static_cast<int>(row_begin), static_cast<int>(row_end),
                                first.cols, type == DType::bf16};
  (type == DType::f32 ? dequantize_floats : dequantize_halves)(product, first, second, target,
                                                               stream);
}

}  // namespace walsh::cuda
