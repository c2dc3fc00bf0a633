// Computes percentiles of any number of values in bounded memory of at most 12 MiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace walsh {

// Percentiles are exact up to kExact values. Beyond that values are counted in buckets: percentiles
// are then within 2^-13 of the value (or within 1e-12, for smaller ones); minimum and maximum stay
// exact.
class Distribution {
 public:
  static constexpr size_t kExact = size_t{1} << 20;

  void add(double x);
  int64_t count() const { return count_; }
  double min() const { return min_; }  // without values it is 0
  double max() const { return max_; }

  // Returns the value below which `percent` % lie, for each of `percents`, interpolated linearly
  // between the neighbours of rank percent/100 * (n - 1). There must be at least one value.
  std::vector<double> percentiles(const std::vector<double>& percents) const;

 private:
  void count_values();
  double at_rank(int64_t rank) const;  // it needs sorted values or bucket counts

  std::vector<double> values_;  // these values are not counted in buckets yet
  // Each bucket has a count, in ascending order; there are none up to kExact values.
  std::vector<int64_t> counts_;
  int64_t count_ = 0;
  double min_ = 0, max_ = 0;
};

}  // namespace walsh
