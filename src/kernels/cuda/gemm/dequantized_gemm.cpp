#include "kernels/cuda/gemm/gemm.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/gemm/blas.h"
#include "kernels/cuda/weights/dequantize.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

constexpr int64_t kElementBytes = 2;  // It is the size of dequantized weights.

// Returns whether `next` continues `first` in memory and meaning, so that both can be one product
// of stacked weights (q, k and v written side by side; gate and up).
bool continues(const RowMatmul& first, int64_t rows, const RowMatmul& next) {
  const bool bias = first.bias == nullptr ? next.bias == nullptr : next.bias == first.bias + rows;
  return next.dense == nullptr && next.cols == first.cols && next.ldy == first.ldy &&
         next.add == first.add && next.y == first.y + rows && bias && rows % kTileRows == 0;
}

}  // namespace

int64_t rows_from(const Format& format) {
  // Codes of other kinds have no tile kernels.
  if (format.kind != CodeKind::scalar) return kMaxVectors + 1;
  const ScalarCode& code = format.code[0];
  if (code.bits == 8) return kMaxVectors + 1;
  const bool fine = code.group == 32 || code.sub_group != 0;
  if (fine || format.activation_planes > 1) return 64;
  return format.passes > 1 ? 112 : kMaxRowsFrom;
}

struct DequantizedGemm::Impl {
  Blas blas;
  Buffer scratch;

  explicit Impl(uint64_t scratch_bytes) : scratch(scratch_bytes) {}

  void run(const RowMatmul& p, const void* weights, DType type, int64_t row, int64_t rows,
           const Rows& x, int64_t m, Stream stream) {
    blas.multiply({.type = type,
                   .w = weights,
                   .rows = rows,
                   .cols = p.cols,
                   .x = x.data,
                   .m = m,
                   .ldx = x.stride,
                   .bias = p.bias == nullptr ? nullptr : p.bias + row,
                   .y = p.y + row,
                   .ldy = p.ldy,
                   .add = p.add},
                  stream);
  }

  void multiply_dense(const RowMatmul& p, const Rows& x, int64_t m, Stream stream) {
    if (p.dense->type != x.type || p.dense->cols != p.cols || x.basis != Basis::original) {
      throw Error(
          ErrorCode::internal, "dequantized gemm",
          fmt::format("{} weights of {} columns with {} rows for {}", dtype_name(p.dense->type),
                      p.dense->cols, dtype_name(x.type), p.cols));
    }
    run(p, p.dense->data.as(), x.type, 0, p.dense->rows, x, m, stream);
  }

  // Multiplies one matrix in slices of rows that fit into the scratch buffer.
  void multiply_slices(const RowMatmul& p, const Rows& x, int64_t m, Stream stream) {
    const int64_t fit = static_cast<int64_t>(scratch.bytes()) / (p.cols * kElementBytes);
    const int64_t slice = fit / kTileRows * kTileRows;
    if (slice == 0) {
      throw Error(
          ErrorCode::internal, "dequantized gemm",
          fmt::format("scratch of {} bytes holds no tile of {} columns", scratch.bytes(), p.cols));
    }
    for (int64_t row = 0; row < p.rows(); row += slice) {
      const int64_t end = std::min(row + slice, p.rows());
      dequantize(p, x.basis, x.type, row, end, scratch.as(), stream);
      run(p, scratch.as(), x.type, row, end - row, x, m, stream);
    }
  }

  // Multiplies several stacked matrices, which fit into the scratch buffer together.
  void multiply_stack(std::span<const RowMatmul> stack, const Rows& x, int64_t m, Stream stream) {
    int64_t rows = 0;
    for (const RowMatmul& p : stack) {
      dequantize(p, x.basis, x.type, 0, p.rows(), scratch.as<uint16_t>() + rows * p.cols, stream);
      rows += p.rows();
    }
    run(stack[0], scratch.as(), x.type, 0, rows, x, m, stream);
  }
};

DequantizedGemm::DequantizedGemm(uint64_t scratch_bytes)
    : impl_(std::make_unique<Impl>(scratch_bytes)) {}
DequantizedGemm::~DequantizedGemm() = default;
DequantizedGemm::DequantizedGemm(DequantizedGemm&&) noexcept = default;
DequantizedGemm& DequantizedGemm::operator=(DequantizedGemm&&) noexcept = default;

std::string DequantizedGemm::unavailable_reason() {
  return Blas::unavailable_reason();
}

uint64_t DequantizedGemm::scratch_for(int64_t rows, int64_t cols) {
  const int64_t padded = (rows + kTileRows - 1) / kTileRows * kTileRows;
  return static_cast<uint64_t>(padded * cols * kElementBytes);
}

void DequantizedGemm::multiply(std::span<const RowMatmul> products, const Rows& x, int64_t m,
                               Stream stream) {
  if (m <= 0) return;
  for (size_t begin = 0, end; begin < products.size(); begin = end) {
    const RowMatmul& first = products[begin];
    end = begin + 1;
    if (first.dense != nullptr) {
      impl_->multiply_dense(first, x, m, stream);
      continue;
    }
    int64_t rows = first.rows();
    while (end < products.size() && continues(first, rows, products[end]) &&
           scratch_for(rows + products[end].rows(), first.cols) <= impl_->scratch.bytes()) {
      rows += products[end++].rows();
    }
    if (end - begin == 1) {
      impl_->multiply_slices(first, x, m, stream);
    } else {
      impl_->multiply_stack(products.subspan(begin, end - begin), x, m, stream);
    }
  }
}

}  // namespace walsh::cuda
