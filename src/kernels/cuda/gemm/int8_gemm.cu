// Chooses the tile kernel of each product of int8_gemm.
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/int8_tile.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace detail {
namespace {

constexpr int kChunk = 128;

int shift_of(int64_t group, int64_t cols) {
  return group >= cols ? 31 : std::countr_zero(static_cast<uint64_t>(group));
}

void check_matmul(const Matrix& w, const Activations& x, int64_t m) {
  const bool whole_k_tiles = w.cols % kPaddedColumns == 0 && w.cols == x.cols;
  const bool groups = w.group % 32 == 0 && (x.group == kChunk || x.group == 32) &&
                      (w.offset_group == 0 || w.offset_group >= kPaddedColumns);
  if (!whole_k_tiles || !groups || m > x.max_m) {
    throw Error(ErrorCode::internal, "GPU product",
                std::to_string(m) + " vectors of " + std::to_string(x.cols) +
                    " columns (groups of " + std::to_string(x.group) + ") with weights of " +
                    std::to_string(w.cols) + " (groups of " + std::to_string(w.group) + ")");
  }
}

}  // namespace

TileInput tile_input(const Matmul& product, int pass, int64_t m) {
  const Matrix& w = *product.pass[pass];
  const Activations& x = *product.input[pass];
  check_matmul(w, x, m);
  TileInput p;
  p.codes = w.codes.as<const uint4>();
  p.scales = w.scales.as<const uint32_t>();
  p.levels = w.code.levels;
  p.unit = w.code.unit;
  p.inverse_unit = 1 / p.unit;
  p.rows = static_cast<int>(w.rows);
  p.tiles = static_cast<int>(w.tiles());
  p.cols = static_cast<int>(w.cols);
  p.groups = static_cast<int>(w.groups());
  p.group_shift = shift_of(w.group, w.cols);
  if (w.offset_group != 0) {
    p.offsets = w.offsets.as<const uint32_t>();
    p.offset_groups = static_cast<int>((w.cols + w.offset_group - 1) / w.offset_group);
    p.offset_shift = shift_of(w.offset_group, w.cols);
  }
  p.q = x.q.as<const int8_t>();
  p.x_scales = x.scales.as<const float>();
  p.sums = x.sums.as<const int32_t>();
  p.x_shift = x.group == kChunk ? 7 : 5;
  p.planes = x.planes;
  p.bias = pass == 0 ? product.bias : nullptr;
  p.y = product.y;
  p.ldy = product.ldy;
  p.add = product.add || pass > 0;
  return p;
}

namespace {

// Returns the launcher of a tile kernel. Tile kernels exist for scalar codes. Codes without scales
// for 128 columns use the kernel in which scales change within them, whether theirs do or not.
template <typename Decoder>
TileLauncher tile_launch(bool fine) {
  if constexpr (constexpr int kBits = kScalarBits<Decoder>; kBits == 0) {
    return nullptr;
  } else if constexpr (!has_flush(scalar_decoder(kBits), 32)) {
    return fine ? nullptr : launch_tile<Decoder, false>;
  } else if constexpr (!has_flush(scalar_decoder(kBits), 128)) {
    return launch_tile<Decoder, true>;
  } else {
    return fine ? launch_tile<Decoder, true> : launch_tile<Decoder, false>;
  }
}

TileLauncher kernel_for(const Matmul& product, int pass) {
  const Matrix& w = *product.pass[pass];
  const bool fine = std::min<int64_t>(w.group, product.input[pass]->group) < kChunk;
  return with_decoder(w.code.decoder,
                      [&]<typename Decoder>() { return tile_launch<Decoder>(fine); });
}

}  // namespace

void gemm_by_tiles(std::span<const Matmul> products, int64_t m, TileShape shape, Stream stream) {
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t begin = 0, end; begin < products.size(); begin = end) {
      end = begin + 1;
      if (products[begin].pass[pass] == nullptr) continue;
      // Consecutive products with the same kernel share one launch.
      const TileLauncher kernel = kernel_for(products[begin], pass);
      TileLaunch work;
      work.m = static_cast<int>(m);
      work.input[work.count++] = tile_input(products[begin], pass, m);
      while (end < products.size() && work.count < kMaxMatmuls &&
             products[end].pass[pass] != nullptr && kernel_for(products[end], pass) == kernel)
        work.input[work.count++] = tile_input(products[end++], pass, m);
      if (!kernel(shape, work, stream) && !kernel(TileShape::medium, work, stream) &&
          !kernel(TileShape::small, work, stream)) {
        throw Error(ErrorCode::limit, "GPU product", "the device has too little shared memory");
      }
    }
  }
}

}  // namespace detail

namespace {

void int8_gemm_by_tiles(std::span<const Matmul> products, int64_t m, Stream stream) {
  const auto has_tiles = [](const Matmul& p) {
    return detail::kernel_for(p, 0) != nullptr && (!p.pass[1] || detail::kernel_for(p, 1));
  };
  if (!std::all_of(products.begin(), products.end(), has_tiles))
    return detail::gemm_by_gemv(products, m, stream);
  int64_t rows = 0;
  for (const Matmul& product : products)
    rows += product.pass[0]->rows;
  // Large blocks are used only if there are enough of them to fill the device.
  const int64_t large_blocks = (rows + 255) / 256 * ((m + 127) / 128);
  detail::gemm_by_tiles(products, m,
                        large_blocks >= 96 ? detail::TileShape::large : detail::TileShape::medium,
                        stream);
}

}  // namespace

void int8_gemm(std::span<const Matmul> products, int64_t m, Stream stream,
               const BatchSpace& space) {
  if (m <= 0) return;
  if (m <= kMaxVectors) return gemv(products, m, stream);
  std::vector<Matmul> batch, others;
  for (const Matmul& p : products)
    (space.can_multiply(p, m) ? batch : others).push_back(p);
  if (!batch.empty()) space.multiply(batch, m, stream);
  if (!others.empty()) int8_gemm_by_tiles(others, m, stream);
}

}  // namespace walsh::cuda
