#include "kernels/cuda/gemv/gemv_args.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "walsh/error.h"

namespace walsh::cuda::detail {
namespace {

// Returns the shift that turns the number of a k-tile's block of 32 columns into that of its group.
int group_shift(int64_t group) {
  return group == 32 ? 0 : group == 128 ? 2 : 3;
}

void describe_products(std::span<const PassMatmul> group, GemvArgs& args) {
  int tiles = 0;
  for (size_t i = 0; i < kMaxMatmuls; ++i) {
    TileSet& set = args.set[i];
    set.first_tile = std::numeric_limits<int>::max();
    if (i >= group.size()) continue;
    const PassMatmul& p = group[i];
    set.codes = p.matrix->codes.as<uint4>();
    set.scales = p.matrix->scales.as<std::byte>();
    set.offsets = p.matrix->offsets.as<std::byte>();
    set.row_factors = p.matrix->row_factors.as<std::byte>();
    // The unit of trellis codes is multiplied at the end, as on the CPU.
    if (is_trellis(p.matrix->code.decoder)) set.row_unit = p.matrix->code.unit;
    set.bias = p.pass == 0 ? p.product->bias : nullptr;
    set.y = p.product->y;
    set.ldy = p.product->ldy;
    set.rows = static_cast<int>(p.matrix->rows);
    set.first_tile = tiles;
    set.add = p.product->add || p.pass > 0;
    tiles += static_cast<int>(p.matrix->tiles());
  }
  args.tiles = tiles;
}

// Groups neighbouring products for which `together` is true, up to the limit of a launch.
template <typename Together>
bool for_groups(std::span<const Matmul> products, int pass, const Together& together,
                FunctionRef<bool(std::span<const PassMatmul>)> body) {
  PassMatmul group[kMaxMatmuls];
  size_t count = 0;
  for (const Matmul& p : products) {
    if (!p.pass[pass]) continue;
    const PassMatmul next{p.pass[pass], p.input[pass], &p, pass};
    if (count == kMaxMatmuls || (count > 0 && !together(group[0], next))) {
      if (!body({group, count})) return false;
      count = 0;
    }
    group[count++] = next;
  }
  return count == 0 || body({group, count});
}

// Returns how many k-tiles, at most all, have inputs of up to `most` tokens that fit into `shared`
// bytes of shared memory.
int64_t fitting_k_tiles(const GemvKind& kind, int64_t shared, int architecture,
                        const GemvArgs& args, int most) {
  int64_t fit = args.k_tiles;
  for (int tokens = 1; tokens <= most; ++tokens) {
    const int vectors = tokens * args.planes,
              tiles8 = tiles_of_8(kind.decoder, kind.flush, vectors);
    const GemvMemory memory =
        gemv_memory({kind.decoder, kind.flush, tiles8, kind.experts}, architecture);
    const int64_t space = shared - memory.ring_bytes() - memory.sum_bytes;
    const bool doubled = doubles_inputs(kind.decoder, tiles8);
    const int each = input_bytes(vectors, tiles8, args.x_group, doubled);
    fit = std::min(fit, space / (args.input_buffers * each));
  }
  return fit;
}

}  // namespace

void refuse_matmul(const std::string& reason) {
  throw Error(ErrorCode::internal, "GPU product", reason);
}

void describe_matrix(const Matrix& m, GemvArgs& args) {
  const bool per_row = m.group == m.cols;
  if (!per_row && m.group != 32 && m.group != 128 && m.group != 256)
    refuse_matmul(fmt::format("groups of {} columns", m.group));
  args.k_tiles = static_cast<int>(m.cols / kKTileColumns);
  args.unit = is_trellis(m.code.decoder) ? 1.0f : m.code.unit;
  args.table = m.code.levels;
  args.codebook = m.table.as();
  args.scale_shift = per_row ? 3 : group_shift(m.group);
  args.scale_vectors = per_row ? 2 : static_cast<int>(2 * kKTileColumns / m.group);
  args.scale_step = per_row ? 0 : args.scale_vectors * 16;
  args.scale_tile = static_cast<int>(m.groups() * kTileRows * 2);
  if (m.offset_group == 0) return;
  const bool row_offset = m.offset_group == m.cols;
  if (!row_offset && m.offset_group != kKTileColumns)
    refuse_matmul(fmt::format("offsets per {} columns", m.offset_group));
  args.offset_vectors = 2;
  args.offset_step = row_offset ? 0 : 32;
  args.offset_tile = row_offset ? 32 : args.k_tiles * 32;
}

bool same_launch(const PassMatmul& a, const PassMatmul& b) {
  const Matrix &m = *a.matrix, &n = *b.matrix;
  return a.input == b.input && a.pass == b.pass && m.code == n.code && !m.code.own_table &&
         m.cols == n.cols && m.group == n.group && m.offset_group == n.offset_group;
}

bool for_launches(std::span<const Matmul> products, int pass,
                  FunctionRef<bool(std::span<const PassMatmul>)> body) {
  return for_groups(products, pass, same_launch, body);
}

bool for_inputs(std::span<const Matmul> products, int pass,
                FunctionRef<bool(std::span<const PassMatmul>)> body) {
  return for_groups(
      products, pass,
      [](const PassMatmul& a, const PassMatmul& b) {
        return a.input == b.input && a.matrix->cols == b.matrix->cols;
      },
      body);
}

int flush_columns(const Matrix& m, const Activations& x) {
  const int flush = m.group == 32 || x.group == 32 ? 32 : kChunkColumns;
  if (!has_flush(m.code.decoder, flush))
    refuse_matmul(fmt::format("groups of {} columns of weights, {} of inputs", m.group, x.group));
  return flush;
}

void describe_group(std::span<const PassMatmul> group, GemvArgs& args) {
  const Matrix& m = *group.front().matrix;
  const Activations& x = *group.front().input;
  if (x.cols != m.cols) refuse_matmul(fmt::format("{} columns times {} values", m.cols, x.cols));
  describe_matrix(m, args);
  describe_products(group, args);
  args.planes = x.planes;
  args.x_group = x.group;
  args.x_shift = group_shift(x.group);
}

int plan_slices(const GemvKind& kind, int64_t shared, int architecture, GemvArgs& args,
                int wanted) {
  const int64_t fixed = 1024 + table_bytes(kind.decoder);  // The runtime and the kernel need it.
  wanted = std::min(wanted, most_vectors(kind.decoder, kind.flush) / args.planes);
  for (int most = wanted; most > 0; most /= 2) {
    for (args.input_buffers = kind.experts ? 2 : 1; args.input_buffers > 0; --args.input_buffers) {
      const int64_t fit = fitting_k_tiles(kind, shared - fixed, architecture, args, most);
      if (fit <= 0) continue;
      const int64_t slices = (args.k_tiles + fit - 1) / fit;
      args.slice_k_tiles = static_cast<int>((args.k_tiles + slices - 1) / slices);
      return most;
    }
  }
  refuse_matmul(fmt::format("{} bytes of shared memory are too few", shared));
}

int64_t gemv_bytes(const GemvKind& kind, const GemvArgs& args, int architecture) {
  const GemvMemory memory = gemv_memory(kind, architecture);
  const int64_t k_tiles = std::min(args.k_tiles, args.slice_k_tiles);
  const bool doubled = doubles_inputs(kind.decoder, kind.tiles8);
  return memory.ring_bytes() + memory.sum_bytes +
         k_tiles * args.input_buffers *
             input_bytes(args.vectors, kind.tiles8, args.x_group, doubled);
}

}  // namespace walsh::cuda::detail
