#include "codec/product/product_training.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "codec/encode/encode_source.h"
#include "codec/product/product_search.h"

namespace walsh::detail {
namespace {

// The sample has this many weights, a thousand vectors for each entry.
constexpr int64_t kSampleWeights = int64_t{1} << 20;
constexpr int kRounds = 24;

// Holds the targets of a group of a sampled row. Vectors beyond the end of a short group are not
// used.
struct GroupTargets {
  ProductTargets targets;
  int vectors = 0;
};

struct CellSums {
  int64_t sum[kProductEntries][kProductValues] = {};
  int64_t count[kProductEntries] = {};
};

ProductTable steps_of(const ProductCode& code) {
  ProductTable table;
  for (int i = 0; i < kCodebookBytes; ++i)
    table.entries[i / kProductValues][i % kProductValues] =
        static_cast<int16_t>(kProductSteps * code.codebook[i]);
  table.residual = static_cast<int16_t>(kProductSteps * code.residual);
  return table;
}

std::vector<GroupTargets> sample(const ProductCode& code, const Rotator& rotator, int64_t rows,
                                 int64_t cols, ReadRows read_rows, ThreadPool& pool) {
  const int64_t padded = rotator.size(), groups = product_groups(code, padded);
  const int64_t taken = std::clamp<int64_t>(kSampleWeights / padded, 1, rows);
  std::vector<GroupTargets> all(static_cast<size_t>(taken * groups));
  pool.for_each(taken, [&](int64_t item) {
    const int64_t row = item * rows / taken;
    std::vector<float> source(static_cast<size_t>(cols)), rotated(static_cast<size_t>(padded));
    read_finite_rows(read_rows, row, row + 1, cols, source.data());
    rotate_row(rotator, source.data(), cols, row, rotated.data());
    ProductSearch search(code, code.codebook, {});
    for (int64_t g = 0; g < groups; ++g) {
      const float* x = rotated.data() + g * code.group;
      const int64_t n = std::min<int64_t>(code.group, padded - g * code.group);
      const float scale = search.scale_of(x, n);
      if (!(scale > 0)) continue;
      GroupTargets& group = all[static_cast<size_t>(item * groups + g)];
      set_targets(x, n, scale, code.unit, group.targets);
      group.vectors = static_cast<int>(n / kProductValues);
    }
  });
  return all;
}

void add_group(const ProductTable& table, const GroupTargets& group, CellSums& sums) {
  uint8_t pointers[kSearchVectors];
  product_search_kernel()(table, group.targets, group.vectors, pointers);
  for (int v = 0; v < group.vectors; ++v) {
    const int pointer = pointers[v];
    ++sums.count[pointer];
    for (int i = 0; i < kProductValues; ++i) {
      const int target = group.targets.pairs[i / 2][v][i % 2];
      const bool negative = target < table.entries[pointer][i];
      sums.sum[pointer][i] += negative ? target + table.residual : target - table.residual;
    }
  }
}

// Moves entries to the means of their targets. An entry to which nothing was assigned stays.
void move_entries(const std::vector<CellSums>& parts, int limit, ProductTable& table) {
  for (int p = 0; p < kProductEntries; ++p) {
    int64_t count = 0;
    for (const CellSums& part : parts)
      count += part.count[p];
    if (count == 0) continue;
    for (int i = 0; i < kProductValues; ++i) {
      int64_t sum = 0;
      for (const CellSums& part : parts)
        sum += part.sum[p][i];
      const int64_t mean = (2 * sum + (sum < 0 ? -count : count)) / (2 * count);
      table.entries[p][i] = static_cast<int16_t>(std::clamp<int64_t>(mean, -limit, limit));
    }
  }
}

int whole(int steps) {
  return (steps + (steps < 0 ? -kProductSteps / 2 : kProductSteps / 2)) / kProductSteps;
}

Codebook256 whole_numbers(const ProductTable& table) {
  std::array<std::array<int8_t, kProductValues>, kProductEntries> entries;
  for (int p = 0; p < kProductEntries; ++p) {
    for (int i = 0; i < kProductValues; ++i)
      entries[static_cast<size_t>(p)][static_cast<size_t>(i)] =
          static_cast<int8_t>(whole(table.entries[p][i]));
  }
  const auto squares = [](const auto& e) {
    return std::inner_product(e.begin(), e.end(), e.begin(), 0);
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](const auto& a, const auto& b) { return squares(a) < squares(b); });
  Codebook256 codebook;
  std::memcpy(codebook.data(), entries.data(), codebook.size());
  return codebook;
}

}  // namespace

Codebook256 train_codebook(const ProductCode& code, const Rotator& rotator, int64_t rows,
                           int64_t cols, ReadRows read_rows, ThreadPool& pool) {
  const std::vector<GroupTargets> groups = sample(code, rotator, rows, cols, read_rows, pool);
  ProductTable table = steps_of(code);
  constexpr int64_t kGroupsPerItem = 1024;
  const auto count = static_cast<int64_t>(groups.size());
  const int64_t items = ceil_div(count, kGroupsPerItem);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<CellSums> parts(static_cast<size_t>(items));
    pool.for_each(items, [&](int64_t item) {
      const int64_t end = std::min(count, (item + 1) * kGroupsPerItem);
      for (int64_t g = item * kGroupsPerItem; g < end; ++g)
        add_group(table, groups[static_cast<size_t>(g)], parts[static_cast<size_t>(item)]);
    });
    move_entries(parts, kProductSteps * (127 - code.residual), table);
  }
  return whole_numbers(table);
}

}  // namespace walsh::detail
