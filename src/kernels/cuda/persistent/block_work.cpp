#include "kernels/cuda/persistent/block_work.h"

#include <algorithm>
#include <numeric>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/persistent/planned_phase.h"

namespace walsh::cuda {
namespace {

// Returns the cost of a tile. In long phases tiles of 2, 3 and 4 bits take times in the proportion
// 28, 38 and 48 (docs/gpu.md).
int tile_weight(const PhaseCode& code) {
  return 10 * code.words / 4 + 8;
}

// Gives each block in turn as many tiles as weigh at most `most` together, but leaves one tile for
// every later block. `weight_before` has the weight of all tiles before each tile, and at the end
// that of all. Returns the first tile of each block, or nothing if tiles are left over.
std::vector<int> fill_blocks(std::span<const int64_t> weight_before, int blocks, int64_t most) {
  const int tiles = static_cast<int>(weight_before.size()) - 1;
  std::vector<int> first{0};
  for (int block = 0; block < blocks; ++block) {
    const int begin = first.back(), last = tiles - (blocks - 1 - block);
    const auto limit = weight_before.begin() + last + 1;
    const auto end = std::upper_bound(weight_before.begin() + begin, limit,
                                      weight_before[static_cast<size_t>(begin)] + most);
    const int next = static_cast<int>(end - weight_before.begin()) - 1;
    if (next == begin) return {};
    first.push_back(next);
  }
  if (first.back() < tiles) return {};
  return first;
}

}  // namespace

std::vector<int> share_tiles(std::span<const TileRun> runs, int blocks) {
  std::vector<int64_t> weight_before{0};
  bool equal = true;
  for (const TileRun& run : runs) {
    equal &= run.tiles == 0 || run.weight == runs[0].weight;
    for (int i = 0; i < run.tiles; ++i)
      weight_before.push_back(weight_before.back() + run.weight);
  }
  const int tiles = static_cast<int>(weight_before.size()) - 1;
  if (equal) {
    std::vector<int> first;
    for (int block = 0; block <= blocks; ++block)
      first.push_back(block * (tiles / blocks) + std::min(block, tiles % blocks));
    return first;
  }
  // The smallest limit that suffices lies between these.
  int64_t low = 1, high = weight_before.back();
  while (low < high) {
    const int64_t middle = std::midpoint(low, high);
    if (fill_blocks(weight_before, blocks, middle).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return fill_blocks(weight_before, blocks, low);
}

PhaseOrder::Phase PhaseOrder::next(Work work, std::span<ExchangeArray* const> in) const {
  const int index = static_cast<int>(phases_.size());
  int from = -1;  // The arrays of `in` were last written by this phase.
  for (const ExchangeArray* array : in)
    from = std::max(from, array->written);
  const auto read = std::count_if(
      in.begin(), in.end(), [&](const ExchangeArray* array) { return array->written == from; });
  Phase before{-1, -1, 0};
  if (from >= 0 && phases_[static_cast<size_t>(from)].results == read)
    before = phases_[static_cast<size_t>(from)];
  if (work == Work::matmul) return {before.complete, index, 0};
  // All inputs have arrived and been read; nothing is known about the phases in between.
  return {before.writing, before.complete == index - 1 ? index : before.complete, 0};
}

bool PhaseOrder::may_add(Work work, std::span<ExchangeArray* const> in,
                         std::span<ExchangeArray* const> out) const {
  const int writing = next(work, in).writing;
  return std::all_of(out.begin(), out.end(), [&](const ExchangeArray* array) {
    const bool reads_itself = std::find(in.begin(), in.end(), array) != in.end();
    return !reads_itself && std::max(array->read, array->written) <= writing;
  });
}

bool PhaseOrder::add(Work work, std::span<ExchangeArray* const> in,
                     std::span<ExchangeArray* const> out) {
  if (!may_add(work, in, out)) return false;
  const int index = static_cast<int>(phases_.size());
  phases_.push_back(next(work, in));
  phases_.back().results = static_cast<int64_t>(out.size());
  for (ExchangeArray* array : in)
    array->read = index;
  for (ExchangeArray* array : out) {
    array->written = index;
    ++array->writes;
  }
  return true;
}

// Divides the work of the phases among the blocks. Every block has a part of every product.
void PersistentProgram::share_work() {
  blocks_ = current_device().multiprocessors;
  for (const ProgramPhase& phase : phases_)
    if (detail::has_tiles(phase)) blocks_ = std::min(blocks_, phase.gemv.tiles);
  blocks_ -= blocks_ > 1 ? blocks_ % 2 : 0;
  const auto stride = static_cast<size_t>(blocks_) + 1;
  shares_.assign(phases_.size() * stride, 0);
  for (size_t i = 0; i < phases_.size(); ++i) {
    ProgramPhase& phase = phases_[i];
    for (size_t j = 0; j < kPhaseArrays; ++j) {
      if (links_[i].in[j]) phase.in[j].flips = links_[i].in[j]->writes & 1;
      if (links_[i].out[j]) phase.out[j].flips = links_[i].out[j]->writes & 1;
    }
    if (phase.kind == PhaseKind::attention) {
      AttentionPhase& a = phase.attention;
      const int most =
          detail::attention_splits(codes_.rows, a.heads, a.kv_heads, kMostBlocks, int64_t{1} << 40);
      const int least_parts = codes_.rows * a.kv_heads * a.tiles;
      a.most_splits = std::clamp(std::min(blocks_ / least_parts, most), 1, kPhaseMaxSplits);
      a.whole_blocks = a.tiles;
      if (codes_.experts) {
        // A block has few heads, because other blocks and the memory have little else to do, and
        // because sums of warps that fit one pass are combined soonest.
        a.whole_tiles = 2;
        a.whole_heads = std::max(kHeadPass / a.head_dim / 2, 1);
        a.whole_blocks = (a.group + a.whole_heads - 1) / a.whole_heads;
      }
    }
    if (!detail::has_tiles(phase)) continue;
    GemvArgs& args = phase.gemv;
    args.tiles_per_block = args.tiles / blocks_;
    args.blocks_with_more = args.tiles % blocks_;
    const int most = share_tiles_of(phase, std::span(shares_).subspan(i * stride, stride));
    const int run = most * args.k_tiles / kProgramWarps + 1;
    longest_run_ = std::max(longest_run_, run);
    if (phase.kind == PhaseKind::matmul)
      most_runs_ = std::max(most_runs_, runs_of(experts_[i], run));
    const int64_t sums = int64_t{most + kProgramWarps} * kTileRows * codes_.rows;
    sum_bytes_ = std::max<int64_t>(sum_bytes_, sums * 4);
  }
}

// Computes the first tile of each block. Returns the largest number of tiles that a block has.
int PersistentProgram::share_tiles_of(ProgramPhase& phase, std::span<uint16_t> first) const {
  const GemvArgs& args = phase.gemv;
  std::vector<TileRun> runs;
  for (size_t i = 0; i < kMaxMatmuls; ++i) {
    const TileSet& set = args.set[i];
    if (set.codes == nullptr) continue;
    const int tiles = (set.rows + kTileRows - 1) / kTileRows;
    runs.push_back({tiles, tile_weight(phase.code[i])});
  }
  const std::vector<int> shares = share_tiles(runs, blocks_);
  int most = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    first[i] = static_cast<uint16_t>(shares[i]);
    if (i > 0) most = std::max(most, shares[i] - shares[i - 1]);
  }
  return most;
}

}  // namespace walsh::cuda
