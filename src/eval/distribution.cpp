#include "eval/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace walsh {
namespace {

// A bucket is the sign, the exponent and the first bits of the mantissa. There are 2^12 buckets per
// power of two, over the powers from kLeast to kMost on either side of the one around 0.
constexpr int kDroppedBits = 52 - 12;
constexpr double kLeast = 0x1p-40, kMost = 0x1p20;

constexpr int64_t leading_bits(double magnitude) {
  return static_cast<int64_t>(std::bit_cast<uint64_t>(magnitude) >> kDroppedBits);
}

constexpr int64_t kZeroBucket = leading_bits(kMost) - leading_bits(kLeast) + 1;

size_t bucket_of(double x) {
  const double magnitude = std::min(std::fabs(x), kMost);
  if (!(magnitude >= kLeast)) return kZeroBucket;
  const int64_t distance = leading_bits(magnitude) - leading_bits(kLeast) + 1;
  return static_cast<size_t>(x < 0 ? kZeroBucket - distance : kZeroBucket + distance);
}

// Returns the middle of a bucket's range.
double value_of(size_t bucket) {
  const int64_t distance = static_cast<int64_t>(bucket) - kZeroBucket;
  if (distance == 0) return 0;
  const auto bits = static_cast<uint64_t>(std::abs(distance) - 1 + leading_bits(kLeast));
  const uint64_t middle = (2 * bits + 1) << (kDroppedBits - 1);
  return std::copysign(std::bit_cast<double>(middle), static_cast<double>(distance));
}

}  // namespace

void Distribution::add(double x) {
  min_ = count_ == 0 ? x : std::min(min_, x);
  max_ = count_ == 0 ? x : std::max(max_, x);
  ++count_;
  if (values_.size() == kExact) count_values();
  values_.push_back(x);
}

void Distribution::count_values() {
  counts_.resize(2 * kZeroBucket + 1);
  for (const double x : values_)
    ++counts_[bucket_of(x)];
  values_.clear();
}

double Distribution::at_rank(int64_t rank) const {
  if (counts_.empty()) return values_[static_cast<size_t>(rank)];
  if (rank == 0) return min_;
  if (rank == count_ - 1) return max_;
  size_t bucket = 0;
  while (rank >= counts_[bucket])
    rank -= counts_[bucket++];
  return std::clamp(value_of(bucket), min_, max_);
}

std::vector<double> Distribution::percentiles(const std::vector<double>& percents) const {
  Distribution sorted = *this;
  if (sorted.counts_.empty()) {
    std::sort(sorted.values_.begin(), sorted.values_.end());
  } else {
    sorted.count_values();
  }
  std::vector<double> result;
  for (const double percent : percents) {
    const double rank = percent / 100.0 * static_cast<double>(count_ - 1);
    const int64_t low = std::min(static_cast<int64_t>(rank), count_ - 1);
    const int64_t high = std::min(low + 1, count_ - 1);
    const double weight = rank - static_cast<double>(low);
    result.push_back(sorted.at_rank(low) * (1 - weight) + sorted.at_rank(high) * weight);
  }
  return result;
}

}  // namespace walsh
