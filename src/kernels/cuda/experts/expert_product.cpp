// Chooses kernels and launches for products of experts.
#include "kernels/cuda/experts/expert_product.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/experts/expert_gemv.h"
#include "kernels/cuda/experts/expert_tile.h"
#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

using detail::PassMatmul;

ExpertGemvKernel gemv_kernel_for(const GemvKind& kind) {
  return with_decoder(kind.decoder,
                      [&]<typename Decoder>() { return expert_gemv_kernel<Decoder>(kind); });
}

// Returns whether a launch is the last one of its product.
bool is_last(const PassMatmul& p) {
  return p.pass == 1 || p.product->pass[1] == nullptr;
}

void add_tail(std::span<const PassMatmul> group, const ExpertBatch& batch, const ExpertTail& tail,
              ExpertGemvArgs& args) {
  const PassMatmul& first = group.front();
  args.chosen_before = true;
  if (tail.makes_inputs) {
    const auto form = std::find_if(tail.forms.begin(), tail.forms.end(),
                                   [&](const InputForm& f) { return f.out == first.input; });
    if (form == tail.forms.end() || !can_make_inputs({form, 1}))
      detail::refuse_matmul("inputs that its blocks cannot make");
    args.makes_inputs = true;
    args.in = input_view(tail.source);
    args.form = form_view(tail.source, *form, batch.slots);
    args.clamp = tail.clamp;
  }
  if (tail.sum.arrived == nullptr || !is_last(first)) return;
  const int64_t rows = tail.sum.sum.m;
  if (group.size() != 1 || rows > kMostSummedRows)
    detail::refuse_matmul(fmt::format("sums of {} rows of {} products", rows, group.size()));
  args.sum = tail.sum;
}

void multiply_vectors(std::span<const PassMatmul> group, int64_t stride, const ExpertBatch& batch,
                      const ExpertTail* tail, Stream stream) {
  const DeviceInfo& device = current_device();
  const Matrix& matrix = *group.front().matrix;
  const Activations& x = *group.front().input;
  ExpertGemvArgs args;
  detail::describe_group(group, args);
  GemvKind kind;
  kind.experts = true;
  kind.decoder = matrix.code.decoder;
  kind.flush = detail::flush_columns(matrix, x);
  // Kernels keep their arguments in shared memory as well, so 1024 bytes are left for them.
  const auto shared = static_cast<int64_t>(device.shared_bytes) - 1024;
  const int most = detail::plan_slices(kind, shared, device.code, args, kVectorSlots);
  const int per_item = batch.plan.per_item;
  if (per_item > most)
    detail::refuse_matmul(fmt::format("{} slots of an expert at once, {} fit", per_item, most));
  args.m = per_item;
  args.vectors = per_item * args.planes;
  args.q = x.q.as<int8_t>();
  args.x_scales = x.scales.as<float>();
  args.x_sums = x.sums.as<int32_t>();
  args.stride = stride;
  args.items = batch.items;
  args.rows = batch.rows;
  kind.tiles8 = tiles_of_8(kind.decoder, kind.flush, args.vectors);
  args.share = expert_tiles(args.tiles, batch, device.multiprocessors);
  if (tail != nullptr) add_tail(group, batch, *tail, args);
  const int64_t places = batch.plan.places(batch.slots, batch.experts);
  args.places = static_cast<int>(places);
  const int64_t blocks = expert_blocks(places, device.multiprocessors);
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(gemv_warps(code_vectors(kind.decoder)) * 32)),
                          static_cast<size_t>(detail::gemv_bytes(kind, args, device.code))};
  launch("experts", gemv_kernel_for(kind), shape, stream, args);
}

detail::ExpertTileLauncher tile_kernel_for(const PassMatmul& p) {
  const bool fine = std::min<int64_t>(p.matrix->group, p.input->group) < kChunkColumns;
  const DecoderKind decoder = p.matrix->code.decoder;
  if (fine && !has_flush(decoder, 32))
    detail::refuse_matmul("codes of 128 columns with inputs in groups of 32 columns");
  return with_decoder(decoder, [&]<typename Decoder>() -> detail::ExpertTileLauncher {
    if constexpr (kScalarBits<Decoder> != 0) {
      return detail::expert_tile<Decoder>(fine);
    } else {
      detail::refuse_matmul("codes without tiles");
    }
  });
}

// Multiplies with tiles of `shape`, or of the next shape that the device and the codes support.
void multiply_tiles(std::span<const PassMatmul> group, int64_t stride, const ExpertBatch& batch,
                    detail::TileShape shape, Stream stream) {
  using detail::TileShape;
  const auto kernel = tile_kernel_for(group.front());
  detail::ExpertTileLaunch work;
  work.stride = stride;
  work.items = batch.items;
  work.rows = batch.rows;
  work.places = batch.plan.places(batch.slots, batch.experts);
  for (const PassMatmul& p : group)
    work.tiles.input[work.tiles.count++] = detail::tile_input(*p.product, p.pass, 0);
  for (const TileShape tried :
       {TileShape::group, TileShape::large, TileShape::medium, TileShape::small}) {
    if (tried >= shape && kernel(tried, work, stream)) return;
  }
  throw Error(ErrorCode::limit, "GPU product", "the device has too little shared memory");
}

}  // namespace

namespace detail {

void multiply_experts_by_tiles(std::span<const Matmul> products, int64_t stride,
                               const ExpertBatch& batch, TileShape shape, Stream stream) {
  for (int pass = 0; pass < 2; ++pass) {
    for_launches(products, pass, [&](std::span<const PassMatmul> group) {
      multiply_tiles(group, stride, batch, shape, stream);
      return true;
    });
  }
}

}  // namespace detail

bool have_tiles(const Format& format) {
  return !format.dense && format.kind == CodeKind::scalar;
}

void multiply_experts(std::span<const Matmul> products, int64_t stride, const ExpertBatch& batch,
                      Stream stream, const ExpertTail* tail) {
  if (batch.slots == 0) return;
  if (batch.plan.kind == ExpertPlan::Kind::tiles) {
    if (tail != nullptr) detail::refuse_matmul("a tail of tiles");
    const bool many = batch.plan.per_item >= kLargeTileSlots;
    detail::multiply_experts_by_tiles(products, stride, batch,
                                      many ? detail::TileShape::group : detail::TileShape::medium,
                                      stream);
    return;
  }
  for (int pass = 0; pass < 2; ++pass) {
    detail::for_launches(products, pass, [&](std::span<const PassMatmul> group) {
      multiply_vectors(group, stride, batch, tail, stream);
      return true;
    });
  }
}

}  // namespace walsh::cuda
