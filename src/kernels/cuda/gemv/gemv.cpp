// Chooses kernels and launches for GEMV.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/gemm/int8_tile.h"
#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {
namespace {

using detail::flush_columns;
using detail::PassMatmul;

GemvKernel kernel_for(const GemvKind& kind) {
  return with_decoder(kind.decoder, [&]<typename Decoder>() { return gemv_kernel<Decoder>(kind); });
}

void launch_gemv(const GemvKind& kind, GemvArgs args, Stream stream) {
  const DeviceInfo& device = current_device();
  const int blocks = std::min(args.tiles, device.multiprocessors);
  args.tiles_per_block = args.tiles / blocks;
  args.blocks_with_more = args.tiles % blocks;
  const int64_t used = detail::gemv_bytes(kind, args, device.code);
  // More than half of the shared memory is asked for, so that two blocks of one product never share
  // a multiprocessor.
  const int64_t half = static_cast<int64_t>(device.shared_bytes) / 2 + 1024;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(gemv_warps(code_vectors(kind.decoder)) * 32)),
                          static_cast<size_t>(std::max(used, half))};
  launch("gemv", kernel_for(kind), shape, stream, args);
}

GemvKind describe(std::span<const PassMatmul> group, GemvArgs& args, int& most_tokens) {
  const Matrix& m = *group.front().matrix;
  const Activations& x = *group.front().input;
  detail::describe_group(group, args);
  GemvKind kind;
  kind.decoder = m.code.decoder;
  kind.flush = flush_columns(m, x);
  const DeviceInfo& device = current_device();
  most_tokens =
      detail::plan_slices(kind, static_cast<int64_t>(device.shared_bytes), device.code, args);
  return kind;
}

void multiply_group(std::span<const PassMatmul> group, int64_t m, Stream stream) {
  GemvArgs args;
  int most_tokens = 0;
  GemvKind kind = describe(group, args, most_tokens);
  const Activations& x = *group.front().input;
  const int64_t groups = x.cols / x.group;
  for (int64_t first = 0; first < m; first += most_tokens) {
    GemvArgs part = args;
    const int64_t vector = first * x.planes;
    part.m = static_cast<int>(std::min<int64_t>(most_tokens, m - first));
    part.vectors = part.m * x.planes;
    part.q = x.q.as<int8_t>() + vector * x.cols;
    part.x_scales = x.scales.as<float>() + vector * groups;
    part.x_sums = x.sums.as<int32_t>() + vector * groups;
    for (size_t i = 0; i < group.size(); ++i)
      part.set[i].y += first * part.set[i].ldy;
    kind.tiles8 = tiles_of_8(kind.decoder, kind.flush, part.vectors);
    launch_gemv(kind, part, stream);
  }
}

void check_matmul(const Matmul& p) {
  for (int pass = 0; pass < 2; ++pass) {
    if (!p.pass[pass]) continue;
    if (!p.input[pass]) detail::refuse_matmul("no input");
    if (p.pass[pass]->rows != p.pass[0]->rows) detail::refuse_matmul("passes of different sizes");
  }
}

}  // namespace

void detail::gemm_by_gemv(std::span<const Matmul> products, int64_t m, Stream stream) {
  for (const Matmul& p : products)
    if (p.pass[0] || p.pass[1]) check_matmul(p);
  for (int pass = 0; pass < 2; ++pass) {
    detail::for_launches(products, pass, [&](std::span<const PassMatmul> group) {
      multiply_group(group, m, stream);
      return true;
    });
  }
}

void gemv(std::span<const Matmul> products, int64_t m, Stream stream) {
  if (m < 0 || m > kMaxVectors) detail::refuse_matmul(fmt::format("{} vectors at once", m));
  if (m > 0) detail::gemm_by_gemv(products, m, stream);
}

}  // namespace walsh::cuda
