// Chooses kernels and launches for the products of decoding.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/matvec_args.h"

namespace walsh::cuda {
namespace {

using detail::flush_columns;
using detail::PassProduct;
using detail::same_launch;

// What the kernels' kLargeShared is: code for 8.0 also runs on 8.6 and 8.9.
bool large_shared() {
  return current_device().code == 80 || current_device().code == 90;
}

int tiles_of_8(int vectors) {
  return vectors == 1 ? 0 : vectors <= 8 ? 1 : vectors <= 16 ? 2 : 4;
}

MatvecKernel kernel_for(const MatvecKind& kind) {
  switch (kind.bits) {
    case 2:
      return matvec_kernel<2>(kind);
    case 3:
      return matvec_kernel<3>(kind);
    case 4:
      return matvec_kernel<4>(kind);
    default:
      return matvec_kernel<8>(kind);
  }
}

// Shared memory left for inputs.
int64_t input_space(const MatvecKind& kind) {
  const MatvecMemory memory = matvec_memory(kind.bits, kind.flush, kind.tiles8, large_shared());
  constexpr int64_t kStatic = 1024;  // of the runtime and of the kernel
  return static_cast<int64_t>(current_device().shared_bytes) - kStatic - memory.ring_bytes() -
         memory.sum_bytes;
}

// Units whose inputs are in shared memory together. They are counted for the most vectors there can
// be, so that the order of additions is the same for every m.
int slice_units(int bits, int flush, int vectors, int x_group, int units) {
  const MatvecKind kind{bits, flush, tiles_of_8(vectors), false};
  const int64_t fit = input_space(kind) / input_bytes(vectors, kind.tiles8, x_group);
  if (fit == 0) return 0;
  const int64_t slices = (units + fit - 1) / fit;
  return static_cast<int>((units + slices - 1) / slices);
}

// The most vectors of a launch and its slices.
void plan_slices(const MatvecKind& kind, MatvecArgs& args, int& most_tokens) {
  for (most_tokens = kMaxVectors; most_tokens > 0; most_tokens /= 2) {
    args.slice_units =
        slice_units(kind.bits, kind.flush, most_tokens * args.planes, args.x_group, args.units);
    if (args.slice_units > 0) return;
  }
  detail::refuse_product(
      fmt::format("{} bytes of shared memory are too few", current_device().shared_bytes));
}

void launch_matvec(const MatvecKind& kind, MatvecArgs args, Stream stream) {
  const MatvecMemory memory = matvec_memory(kind.bits, kind.flush, kind.tiles8, large_shared());
  const int units = kind.fused ? args.units : std::min(args.units, args.slice_units);
  const DeviceInfo& device = current_device();
  const int blocks = std::min(args.tiles, device.multiprocessors);
  const bool share =
      kind.fused && device.major >= 9 && blocks % 2 == 0 && args.units > memory.warps;
  args.cluster = share ? 2 : 1;
  args.tiles_per_block = args.tiles / blocks;
  args.blocks_with_more = args.tiles % blocks;
  const int64_t used = int64_t{memory.ring_bytes()} + memory.sum_bytes +
                       int64_t{units} * input_bytes(args.vectors, kind.tiles8, args.x_group);
  // More than half, unless the next product's block is to come beside: two blocks of one product
  // must not meet on a multiprocessor.
  const int64_t half = static_cast<int64_t>(device.shared_bytes) / 2 + 1024;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks)),
                          dim3(static_cast<unsigned>(memory.warps * 32)),
                          static_cast<size_t>(kind.fused ? used : std::max(used, half)),
                          static_cast<unsigned>(args.cluster)};
  launch("matrix-vector product", kernel_for(kind), shape, stream, args);
}

MatvecKind describe(std::span<const PassProduct> group, MatvecArgs& args, int& most_tokens) {
  const Matrix& m = *group.front().matrix;
  const Activations& x = *group.front().input;
  detail::describe_group(group, args);
  MatvecKind kind;
  kind.bits = m.code->bits;
  kind.flush = flush_columns(m, x);
  plan_slices(kind, args, most_tokens);
  return kind;
}

void multiply_group(std::span<const PassProduct> group, int64_t m, Stream stream) {
  MatvecArgs args;
  int most_tokens = 0;
  MatvecKind kind = describe(group, args, most_tokens);
  const Activations& x = *group.front().input;
  const int64_t groups = x.cols / x.group;
  for (int64_t first = 0; first < m; first += most_tokens) {
    MatvecArgs part = args;
    const int64_t vector = first * x.planes;
    part.m = static_cast<int>(std::min<int64_t>(most_tokens, m - first));
    part.vectors = part.m * x.planes;
    part.q = x.q.as<int8_t>() + vector * x.cols;
    part.x_scales = x.scales.as<float>() + vector * groups;
    part.x_sums = x.sums.as<int32_t>() + vector * groups;
    for (size_t i = 0; i < group.size(); ++i)
      part.set[i].y += first * part.set[i].ldy;
    kind.tiles8 = tiles_of_8(part.vectors);
    launch_matvec(kind, part, stream);
  }
}

void check_product(const Product& p) {
  for (int pass = 0; pass < 2; ++pass) {
    if (!p.pass[pass]) continue;
    if (!p.input[pass]) detail::refuse_product("no input");
    if (p.pass[pass]->rows != p.pass[0]->rows) detail::refuse_product("passes of different sizes");
  }
}

}  // namespace

void multiply(std::span<const Product> products, int64_t m, Stream stream) {
  if (m < 0 || m > kMaxVectors) detail::refuse_product(fmt::format("{} vectors at once", m));
  if (m == 0) return;
  for (const Product& p : products)
    if (p.pass[0] || p.pass[1]) check_product(p);
  for (int pass = 0; pass < 2; ++pass) {
    detail::for_launches(products, pass, [&](std::span<const PassProduct> group) {
      multiply_group(group, m, stream);
      return true;
    });
  }
}

bool can_fuse(const InputSource& source, std::span<const InputForm> forms,
              std::span<const Product> products) {
  if (forms.size() != 1 || products.empty() || products.size() > kMaxProducts) return false;
  const InputForm& form = forms[0];
  const bool rotated = form.rotation.kind == RotationKind::hadamard;
  if (!form.out || form.out->planes != 1 || source.width <= 0) return false;
  if (form.rotation.kind == RotationKind::qr || (rotated && form.rotation.block > kUnitColumns))
    return false;
  const Matrix* first = products[0].pass[0];
  for (const Product& p : products) {
    const PassProduct a{first, form.out, &p, 0}, b{p.pass[0], form.out, &p, 0};
    if (p.pass[1] || !p.pass[0] || p.input[0] != form.out || !same_launch(a, b)) return false;
  }
  if (form.out->cols != first->cols || !input_view(source).vectors) return false;
  const MatvecKind kind{first->code->bits, flush_columns(*first, *form.out), 0, true};
  const int64_t units = first->cols / kUnitColumns;
  return kind.bits != 8 && units <= kFusedUnits &&
         units * input_bytes(1, 0, form.out->group) <= input_space(kind);
}

void prepare_and_multiply(const InputSource& source, std::span<const InputForm> forms,
                          std::span<const Product> products, Stream stream) {
  if (!can_fuse(source, forms, products)) detail::refuse_product("cannot be fused with its input");
  PassProduct group[kMaxProducts];
  for (size_t i = 0; i < products.size(); ++i)
    group[i] = {products[i].pass[0], products[i].input[0], &products[i], 0};
  MatvecArgs args;
  int most_tokens = 0;
  MatvecKind kind = describe({group, products.size()}, args, most_tokens);
  kind.fused = true;
  args.m = args.vectors = 1;
  args.in = input_view(source);
  args.form = form_view(source, forms[0], 1);
  launch_matvec(kind, args, stream);
}

}  // namespace walsh::cuda
