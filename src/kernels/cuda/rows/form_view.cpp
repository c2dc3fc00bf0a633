#include "kernels/cuda/rows/form_view.h"

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int64_t kMaxColumns = int64_t{1} << 24;
constexpr int kMaxBlock = 1024;

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::internal, "GPU input", reason);
}

void check_rotation(const Rotation& rotation) {
  if (rotation.kind == RotationKind::qr) {
    throw Error(ErrorCode::usage, "rotation qr", "is for comparisons on the CPU only");
  }
  const bool known = rotation.block >= 32 && rotation.block <= kMaxBlock &&
                     std::has_single_bit(static_cast<unsigned>(rotation.block));
  if (rotation.kind == RotationKind::hadamard && !known)
    refuse(fmt::format("Hadamard block of {}", rotation.block));
}

}  // namespace

InputView input_view(const InputSource& source) {
  if (source.width <= 0 || source.width > kMaxColumns)
    refuse(fmt::format("{} columns", source.width));
  InputView view;
  view.x = source.x;
  view.up = source.up;
  view.gain = source.gain;
  view.eps = source.eps;
  view.ldx = source.ldx;
  view.width = static_cast<int>(source.width);
  view.function = source.function;
  view.inverse_width = 1.0 / static_cast<double>(source.width);
  view.vectors = source.width % kLaneColumns == 0 && source.ldx % 4 == 0 && is_aligned(source.x) &&
                 is_aligned(source.up) && is_aligned(source.gain);
  return view;
}

FormView form_view(const InputSource& source, const InputForm& form, int64_t m) {
  const bool rotated = form.rotation.kind != RotationKind::none;
  check_rotation(form.rotation);
  const bool whole = !rotated || form.padded % 32 == 0;
  if (form.padded < source.width || form.padded > kMaxColumns || !whole)
    refuse(fmt::format("{} columns padded to {}", source.width, form.padded));
  FormView view;
  view.padded = static_cast<int>(form.padded);
  view.cols = (view.padded + kKTileColumns - 1) / kKTileColumns * kKTileColumns;
  view.block = rotated ? form.rotation.block : 0;
  view.full = rotated ? view.padded / view.block * view.block : view.padded;
  view.signs = form.rotation.signs;
  view.seed = form.rotation.seed;
  if (!form.out) {
    if (!form.rows || form.stride < form.padded) refuse("no place for the rows");
    view.rows = form.rows;
    view.stride = form.stride;
    view.row_type = form.row_type;
    return view;
  }
  const Activations& out = *form.out;
  const bool group_known = out.group == 32 || out.group == 128;
  const bool planes_known = out.planes == 1 || out.planes == 2;
  if (out.cols != view.cols || out.max_m < m || !group_known || !planes_known) {
    refuse(fmt::format("{} x {} int8 values for {} inputs of {} columns", out.max_m, out.cols, m,
                       form.padded));
  }
  view.group = out.group;
  view.planes = out.planes;
  view.q = out.q.as<int8_t>();
  view.scales = out.scales.as<float>();
  view.sums = out.sums.as<int32_t>();
  return view;
}

}  // namespace walsh::cuda
