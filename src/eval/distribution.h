// Computes percentiles of any number of values in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace walsh {

// Percentiles are exact up to kExact values. Beyond that values are counted in buckets: percentiles
// are then within 2^-13 of the value (or within 1e-12, for smaller ones); minimum and maximum stay
// exact. It takes at most 12 MiB.
class Distribution {
 public:
  static constexpr size_t kExact = size_t{1} << 20;

  void add(double x);
  int64_t count() const { return count_; }
  double min() const { return min_; }  // 0 without values
  double max() const { return max_; }

  // Returns the value below which `percent` % lie, for each of `percents`, interpolated linearly
  // between the neighbours of rank percent/100 * (n - 1). Needs at least one value.
  std::vector<double> percentiles(const std::vector<double>& percents) const;

 private:
  void count_values();
  double at_rank(int64_t rank) const;  // needs sorted values or bucket counts

  std::vector<double> values_;   // values not counted in buckets yet
  std::vector<int64_t> counts_;  // per bucket, in ascending order; empty up to kExact values
  int64_t count_ = 0;
  double min_ = 0, max_ = 0;
};

}  // namespace walsh
