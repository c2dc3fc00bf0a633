#include "kernels/cuda/gemm/batch_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <vector>

#include "base/checked.h"
#include "kernels/cuda/gemm/batch_prepare.h"
#include "kernels/cuda/gemv/gemv_args.h"
#include "kernels/cuda/launch.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace detail {
namespace {

// Returns the launcher of batch kernels. They exist for trellis codes, and for scalar codes whose
// scales hold for 128 columns.
template <typename Decoder>
BatchLauncher batch_launcher() {
  constexpr int kBits = kScalarBits<Decoder>;
  if constexpr (kIsTrellis<Decoder> || (kBits != 0 && has_flush(scalar_decoder(kBits), 128))) {
    return launch_batch<Decoder>;
  } else {
    return nullptr;
  }
}

BatchLauncher launcher_of(DecoderKind decoder) {
  return with_decoder(decoder, []<typename Decoder>() { return batch_launcher<Decoder>(); });
}

BatchOrder order_of(DecoderKind decoder) {
  return is_trellis(decoder) ? BatchOrder::tiles : BatchOrder::eights;
}

int shift_of(int64_t group, int64_t cols) {
  return group >= cols ? 31 : std::countr_zero(static_cast<uint64_t>(group));
}

bool has_groups(const Matrix& w) {
  const auto known = [&](int64_t group) {
    return group == w.cols || group == kChunkColumns || group == kKTileColumns;
  };
  return w.cols % kKTileColumns == 0 && known(w.group) &&
         (w.offset_group == 0 || (known(w.offset_group) && w.offset_group >= kKTileColumns));
}

BatchMatrix batch_matrix(const PassMatmul& p) {
  const Matrix& w = *p.matrix;
  BatchMatrix b;
  b.codes = w.codes.as<const uint4>();
  b.scales = w.scales.as<const uint32_t>();
  b.offsets = w.offset_group != 0 ? w.offsets.as<const uint32_t>() : nullptr;
  b.row_factors = w.row_factors.empty() ? nullptr : w.row_factors.as<const uint32_t>();
  b.bias = p.pass == 0 ? p.product->bias : nullptr;
  b.y = p.product->y;
  b.ldy = p.product->ldy;
  b.rows = static_cast<int>(w.rows);
  b.tiles = static_cast<int>(w.tiles());
  b.add = p.product->add || p.pass > 0;
  return b;
}

// Returns one launch for products that share input, codes and groups.
BatchLaunch batch_launch(std::span<const PassMatmul> group, int64_t m, BatchShape shape) {
  const Matrix& w = *group.front().matrix;
  BatchLaunch launch;
  for (const PassMatmul& p : group)
    launch.matrix[launch.count++] = batch_matrix(p);
  launch.levels = w.code.levels;
  launch.unit = w.code.unit;
  launch.inverse_unit = 1 / launch.unit;
  launch.groups = static_cast<int>(w.groups());
  launch.group_shift = shift_of(w.group, w.cols);
  if (w.offset_group != 0) {
    launch.offset_groups = static_cast<int>((w.cols + w.offset_group - 1) / w.offset_group);
    launch.offset_shift = shift_of(w.offset_group, w.cols);
  }
  launch.m = static_cast<int>(m);
  launch.vector_blocks = static_cast<int>(ceil_div(m, shape.vectors));
  launch.k_tiles = static_cast<int>(w.cols / kKTileColumns);
  launch.planes = group.front().input->planes;
  return launch;
}

BatchPack batch_pack(const Activations& x, int64_t m, int vectors, BatchOrder order) {
  BatchPack pack;
  pack.m = static_cast<int>(m);
  pack.cols = static_cast<int>(x.cols);
  pack.planes = x.planes;
  pack.vectors = vectors;
  pack.order = order;
  return pack;
}

// Returns how many vectors the blocks for m vectors have at most, over all shapes.
int64_t padded_vectors(int64_t m) {
  int64_t most = 0;
  for (const BatchShape& shape : kBatchShapes)
    most = std::max(most, ceil_div(m, shape.vectors) * shape.vectors);
  return most;
}

// Returns how many bytes the inputs take.
uint64_t input_bytes(int64_t m, int64_t cols, int planes) {
  const auto step = batch_stage_bytes(static_cast<int>(padded_vectors(m)));
  return static_cast<uint64_t>(cols / kKTileColumns * planes * step);
}

// Returns how many bytes the parts take. Every block of a launch may leave one part of a block of
// results.
uint64_t part_bytes() {
  return static_cast<uint64_t>(current_device().multiprocessors) * kBatchValues * sizeof(float);
}
uint64_t arrived_bytes() {
  return static_cast<uint64_t>(current_device().multiprocessors) * kBatchMostGroups * 4 *
         sizeof(int);
}

}  // namespace

// Estimates the cycles of a launch by a model that was fitted to the times of all shapes
// (docs/gpu_notebook.md). Every block of results takes some time at its end, and more if it is put
// together from parts.
int64_t batch_cycles(std::span<const int64_t> rows, int64_t cols, int64_t m, BatchShape shape,
                     int64_t multiprocessors) {
  // 64 rows and 256 columns take these, once and for each vector.
  constexpr int64_t kDecoding = 359, kVector = 8;
  constexpr int64_t kStore = 38, kParts = 2200, kNoRoom = 5200;
  int64_t tiles = 0;
  for (const int64_t each : rows)
    tiles += ceil_div(each, int64_t{shape.groups} * 64);
  tiles *= ceil_div(m, shape.vectors);
  const int64_t steps = cols / kKTileColumns;
  const int64_t step = shape.groups * (shape.vectors * kVector + kDecoding);
  const int64_t store = kStore * shape.vectors;
  const int64_t whole = tiles / multiprocessors, rest = tiles % multiprocessors;
  int64_t cycles = whole * (steps * step + store);
  if (!has_room_beside(shape)) cycles += kNoRoom;
  if (rest > 0) {
    const int64_t parts = std::min(multiprocessors / rest, steps);
    cycles += ceil_div(steps, parts) * step + store;
    if (parts > 1) cycles += kParts + parts * shape.vectors * shape.groups * 3;
  }
  return cycles;
}

BatchShape batch_shape(std::span<const int64_t> rows, int64_t cols, int64_t m,
                       int64_t multiprocessors) {
  BatchShape best = kBatchShapes[0];
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const BatchShape& shape : kBatchShapes) {
    if (ceil_div(m, shape.vectors) * shape.vectors >= 2 * m) continue;
    // In whole models it costs more than the model says if two small blocks read the same codes.
    if (m > shape.vectors && shape.vectors == kBatchShapes[0].vectors) continue;
    const int64_t cycles = batch_cycles(rows, cols, m, shape, multiprocessors);
    if (cycles < least) least = cycles, best = shape;
  }
  return best;
}

}  // namespace detail

using detail::PassMatmul;

BatchSpace::BatchSpace(int64_t max_m, int64_t cols, int planes)
    : inputs_(detail::input_bytes(max_m, cols, planes), true),
      parts_(detail::part_bytes()),
      arrived_(detail::arrived_bytes(), true) {}

BatchSpace::BatchSpace(int64_t max_m, int64_t cols, int planes, Stream stream)
    : inputs_(detail::input_bytes(max_m, cols, planes)),
      parts_(detail::part_bytes()),
      arrived_(detail::arrived_bytes()) {
  fill_zero(arrived_.as(), arrived_.bytes(), stream);
}

uint64_t BatchSpace::bytes(int64_t max_m, int64_t cols, int planes) {
  return detail::input_bytes(max_m, cols, planes) + detail::part_bytes() + detail::arrived_bytes();
}

bool BatchSpace::is_supported() {
  const detail::BatchLauncher launcher = detail::launcher_of(DecoderKind::scalar3);
  return launcher({32, 2}, nullptr, nullptr);
}

bool BatchSpace::knows(const Matrix& matrix) {
  const detail::BatchLauncher launcher = detail::launcher_of(matrix.code.decoder);
  return launcher != nullptr && detail::has_groups(matrix) && launcher({32, 2}, nullptr, nullptr);
}

bool BatchSpace::can_multiply(const Matmul& product, int64_t m) const {
  const auto fits = [&](int pass) {
    if (product.pass[pass] == nullptr) return true;
    const Matrix& w = *product.pass[pass];
    const Activations* x = product.input[pass];
    return x != nullptr && knows(w) && x->cols == w.cols && x->group == kChunkColumns &&
           m <= x->max_m && detail::input_bytes(m, x->cols, x->planes) <= inputs_.bytes();
  };
  return !empty() && fits(0) && fits(1);
}

void BatchSpace::multiply(std::span<const Matmul> products, int64_t m, Stream stream) const {
  multiply(products, m, {}, stream);
}

void BatchSpace::multiply(std::span<const Matmul> products, int64_t m, detail::BatchShape wanted,
                          Stream stream) const {
  for (const Matmul& p : products)
    if (!can_multiply(p, m)) detail::refuse_matmul(fmt::format("a batch of {} vectors", m));
  multiply(products, m, wanted, stream, [&](const Activations& x, detail::BatchPack& pack) {
    pack.q = x.q.as<const int8_t>();
    pack.x_scales = x.scales.as<const float>();
    detail::pack_batch(pack, stream);
  });
}

bool BatchSpace::prepare_and_multiply(const InputSource& source, std::span<const InputForm> forms,
                                      std::span<const Matmul> products, int64_t m,
                                      Stream stream) const {
  if (m > kMaxBatch || products.empty()) return false;
  const InputView in = input_view(source);
  for (const Matmul& p : products)
    if (!can_multiply(p, m)) return false;
  for (const InputForm& form : forms)
    if (!detail::can_prepare_batch(in, form_view(source, form, m))) return false;
  multiply(products, m, {}, stream, [&](const Activations& x, const detail::BatchPack& pack) {
    const auto is_made = [&](const InputForm& form) { return form.out == &x; };
    const auto form = std::find_if(forms.begin(), forms.end(), is_made);
    if (form == forms.end()) detail::refuse_matmul("an input of a batch has no form");
    detail::prepare_batch(in, form_view(source, *form, m), pack, stream);
  });
  return true;
}

void BatchSpace::multiply(
    std::span<const Matmul> products, int64_t m, detail::BatchShape wanted, Stream stream,
    FunctionRef<void(const Activations&, detail::BatchPack&)> make_inputs) const {
  // Names what inputs_ holds, and how.
  const Activations* packed = nullptr;
  detail::BatchPack last;
  for (int pass = 0; pass < 2; ++pass) {
    detail::for_launches(products, pass, [&](std::span<const PassMatmul> group) {
      const Activations& x = *group.front().input;
      const DecoderKind decoder = group.front().matrix->code.decoder;
      std::vector<int64_t> rows;
      for (const PassMatmul& p : group)
        rows.push_back(p.matrix->rows);
      const detail::BatchShape shape =
          wanted.vectors > 0
              ? wanted
              : detail::batch_shape(rows, x.cols * x.planes, m, current_device().multiprocessors);
      detail::BatchPack pack = detail::batch_pack(x, m, shape.vectors, detail::order_of(decoder));
      pack.to = inputs_.as<std::byte>();
      if (packed != &x || last.vectors != pack.vectors || last.order != pack.order)
        make_inputs(x, pack);
      packed = &x, last = pack;
      detail::BatchLaunch launch = detail::batch_launch(group, m, shape);
      launch.inputs = pack.to;
      launch.parts = parts_.as<float4>();
      launch.arrived = arrived_.as<int>();
      if (!detail::launcher_of(decoder)(shape, &launch, stream))
        detail::refuse_matmul("no kernel for a batch");
      return true;
    });
  }
}

}  // namespace walsh::cuda
