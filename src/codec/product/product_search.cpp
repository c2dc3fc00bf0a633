#include "codec/product/product_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "base/half.h"
#include "codec/scalar/encoder_search.h"

namespace walsh::detail {
namespace {

constexpr int kRounds = 6;

}  // namespace

ProductSearchKernel product_search_kernel() {
  switch (current_isa()) {
    case Isa::ref:
      return product_search_ref;
    case Isa::avx2:
      return product_search_avx2;
    default:
      return product_search_avx512;
  }
}

void set_targets(const float* x, int64_t n, float scale, float unit, ProductTargets& targets) {
  const float factor = static_cast<float>(kProductSteps) / (scale * unit);
  const float limit = kLargestProductTarget;
  int16_t steps[kProductGroup];
  for (int64_t col = 0; col < n; ++col) {
    const float target = std::min(std::max(x[col] * factor, -limit), limit);
    steps[col] = static_cast<int16_t>(static_cast<int>(target + (target < 0 ? -0.5f : 0.5f)));
  }
  for (int64_t block = 0; block < n / 16; ++block) {
    for (int value = 0; value < kProductValues; ++value) {
      for (int v = 0; v < 4; ++v)
        targets.pairs[value / 2][4 * block + v][value % 2] = steps[16 * block + 4 * value + v];
    }
  }
}

ProductSearch::ProductSearch(const ProductCode& code, const int8_t* codebook,
                             const EncodeOptions& options)
    : code_(code), codebook_(codebook), options_(options), kernel_(product_search_kernel()) {
  for (int i = 0; i < kCodebookBytes; ++i)
    table_.entries[i / kProductValues][i % kProductValues] =
        static_cast<int16_t>(kProductSteps * codebook[i]);
  table_.residual = static_cast<int16_t>(kProductSteps * code.residual);
  std::memset(&targets_, 0, sizeof(targets_));
}

// Computes values_ <- x * 2^-exponent_ with the largest near 1, so that squares of denormal and
// huge values stay in range.
void ProductSearch::normalize(const float* x, int64_t n) {
  n_ = n;
  float largest = 0;
  for (int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::fabs(x[i]));
  exponent_ = largest > 0 ? std::clamp(std::ilogb(largest), -120, 126) : 0;
  const float factor = std::ldexp(1.0f, -exponent_);
  squares_ = 0;
  for (int64_t i = 0; i < n; ++i) {
    values_[i] = x[i] * factor;
    squares_ += static_cast<double>(values_[i]) * static_cast<double>(values_[i]);
  }
  rms_ = static_cast<float>(std::sqrt(squares_ / static_cast<double>(n)));
}

void ProductSearch::assign(float scale, Assigned& result) {
  set_targets(values_, n_, scale, code_.unit, targets_);
  const int vectors = static_cast<int>(n_ / kProductValues);
  kernel_(table_, targets_, vectors, result.pointers);
  double xq[kProductValues] = {};
  int qq[kProductValues] = {};
  for (int vector = 0; vector < vectors; ++vector) {
    const int8_t* entry = codebook_ + result.pointers[vector] * kProductValues;
    const int first = vector / 4 * 16 + vector % 4;
    for (int i = 0; i < kProductValues; ++i) {
      const bool negative = targets_.pairs[i / 2][vector][i % 2] < kProductSteps * entry[i];
      const int level = entry[i] + (negative ? -code_.residual : code_.residual);
      result.levels[first + 4 * i] = static_cast<int8_t>(level);
      xq[i] += static_cast<double>(values_[first + 4 * i] * static_cast<float>(level));
      qq[i] += level * level;
    }
  }
  result.xq = (xq[0] + xq[1]) + (xq[2] + xq[3]);
  result.qq = qq[0] + qq[1] + qq[2] + qq[3];
}

// Alternates assignment to the nearest entries and a least-squares refit of the scale.
float ProductSearch::refit(float scale) {
  Assigned assigned;
  for (int round = 0; round < kRounds; ++round) {
    assign(scale, assigned);
    if (!(assigned.xq > 0) || assigned.qq == 0) break;
    const double unit = static_cast<double>(code_.unit);
    const auto next = static_cast<float>(assigned.xq / (static_cast<double>(assigned.qq) * unit));
    if (next == scale) break;
    scale = next;
  }
  return scale;
}

// Rounds the scale as it will be stored, and measures with the rounded one.
ProductSearch::Trial ProductSearch::stored(float scale, float assigned) const {
  const double to_stored = std::ldexp(1.0, exponent_);
  Trial t;
  t.half = saturated_half(static_cast<float>(scale * to_stored), kLargestHalf);
  t.decoded = static_cast<float>(f16_to_f32(t.half) / to_stored);
  t.assigned = assigned > 0 ? assigned : t.decoded;
  return t;
}

double ProductSearch::error_of(const Assigned& assigned, float decoded) const {
  const double scale = static_cast<double>(decoded) * static_cast<double>(code_.unit);
  return squares_ - scale * (2 * assigned.xq - scale * static_cast<double>(assigned.qq));
}

ProductSearch::Trial ProductSearch::best_trial() {
  Trial best;
  float tried[std::size(kStartFactors)];
  size_t count = 0;
  for (const float factor : kStartFactors) {
    const float scale = refit(rms_ * factor);
    // Several starts often end at the same scale.
    if (std::find(tried, tried + count, scale) != tried + count) continue;
    tried[count++] = scale;
    Trial t = stored(scale, 0);
    if (options_.effort == Effort::fast) return t;
    Assigned assigned;
    t.error = squares_;
    if (t.half != 0) {
      assign(t.assigned, assigned);
      t.error = error_of(assigned, t.decoded);
    }
    if (count == 1 || t.error < best.error) best = t;
  }
  return best;
}

float ProductSearch::scale_of(const float* x, int64_t n) {
  normalize(x, n);
  return rms_ > 0 ? std::ldexp(refit(rms_), exponent_) : 0.0f;
}

void ProductSearch::encode_block(const float* x, float scale, uint8_t* pointers, uint8_t* negative,
                                 float* values) {
  constexpr int kVectors = kProductBlock / kProductValues;
  if (!(scale > 0)) {
    std::fill_n(pointers, kVectors, uint8_t{0});
    std::fill_n(negative, kProductBlock, uint8_t{0});
    std::fill_n(values, kProductBlock, 0.0f);
    return;
  }
  set_targets(x, kProductBlock, scale, code_.unit, targets_);
  uint8_t found[kSearchVectors];
  kernel_(table_, targets_, 2 * kVectors, found);  // The kernel takes at least so many vectors.
  std::copy_n(found, kVectors, pointers);
  for (int64_t col = 0; col < kProductBlock; ++col) {
    const int vector = product_vector(col), value = product_value(col);
    const int entry = codebook_[pointers[vector] * kProductValues + value];
    negative[col] = targets_.pairs[value / 2][vector][value % 2] < kProductSteps * entry;
    const int level = entry + (negative[col] ? -code_.residual : code_.residual);
    values[col] = scale * code_.unit * static_cast<float>(level);
  }
}

uint16_t ProductSearch::encode(const float* x, int64_t n, uint8_t* pointers, uint8_t* negative) {
  normalize(x, n);
  Trial chosen;
  Assigned assigned;
  if (rms_ > 0) {
    if (options_.scale_rule == ScaleRule::shape_gain) {
      assign(rms_, assigned);
      const double unit = static_cast<double>(code_.unit);
      const auto levels = static_cast<double>(std::max(assigned.qq, 1));
      const double gain = std::sqrt(squares_ / levels) / unit;
      chosen = stored(static_cast<float>(gain), rms_);
    } else {
      chosen = best_trial();
    }
  }
  if (chosen.half == 0) {
    std::fill_n(pointers, n / kProductValues, uint8_t{0});
    std::fill_n(negative, n, uint8_t{0});
    return 0;
  }
  assign(chosen.assigned, assigned);
  std::copy_n(assigned.pointers, n / kProductValues, pointers);
  for (int64_t col = 0; col < n; ++col) {
    const int pointer = assigned.pointers[col / 16 * 4 + product_vector(col)];
    negative[col] = assigned.levels[col] < codebook_[pointer * kProductValues + product_value(col)];
  }
  return chosen.half;
}

}  // namespace walsh::detail
