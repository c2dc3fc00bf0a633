#include "kernels/cuda/weight_side/weight_side.h"

#include "kernels/cuda/weight_side/kernels.h"
#include "kernels/cuda/weights/pass_view.h"
#include "walsh/error.h"

namespace walsh::cuda {

bool can_rotate_weights(std::span<const RowMatmul> products) {
  for (const RowMatmul& product : products) {
    if (product.pass[0] == nullptr) return false;
    for (int pass = 0; pass < 2 && product.pass[pass] != nullptr; ++pass) {
      const Rotation& rotation = product.rotation[pass];
      if (rotation.kind != RotationKind::hadamard || rotation.block > kKTileColumns ||
          product.pass[pass]->code.vectors() > detail::kWeightSideVectorsOfCodes ||
          table_bytes(product.pass[pass]->code.decoder) > 0)
        return false;
    }
  }
  return true;
}

void multiply_weight_side(std::span<const RowMatmul> products, const Rows& x, int64_t m,
                          Stream stream) {
  if (m <= 0) return;
  const bool vector = m <= kWeightSideVectors;
  if (!can_rotate_weights(products) || x.basis != Basis::original ||
      x.type != (vector ? DType::f32 : DType::bf16)) {
    throw Error(ErrorCode::internal, "weight-side product",
                "weights or inputs of another kind than the kernels read");
  }
  for (const RowMatmul& product : products) {
    for (int pass = 0; pass < 2 && product.pass[pass] != nullptr; ++pass) {
      detail::WeightSideIo io;
      io.x = x.data;
      io.ldx = x.stride;
      io.bias = pass == 0 ? product.bias : nullptr;
      io.y = product.y;
      io.ldy = product.ldy;
      io.rows = static_cast<int>(product.rows());
      io.m = static_cast<int>(m);
      io.add = product.add || pass > 0;
      const detail::PassView view = detail::pass_view(product, pass, false);
      const DecoderKind decoder = product.pass[pass]->code.decoder;
      if (vector) {
        detail::weight_side_vector(decoder, view, io, stream);
      } else {
        detail::weight_side_matrix(decoder, view, io, stream);
      }
    }
  }
}

}  // namespace walsh::cuda
