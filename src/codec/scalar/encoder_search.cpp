#include "codec/scalar/encoder_search.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace walsh::detail {
namespace {

constexpr int kRounds = 6;

class GroupSearch {
 public:
  GroupSearch(const Codebook& codebook, const StoredScale& stored, const float* x, int64_t n)
      : kernels_(encoder_kernels()), codebook_(codebook), stored_(stored), x_(x), n_(n) {
    squares_ = kernels_.sum_squares(x, n);
    rms_ = static_cast<float>(std::sqrt(static_cast<double>(squares_) / static_cast<double>(n)));
  }

  float rms() const { return rms_; }

  // Rounds the scale as it will be stored, and assigns elements with the rounded one.
  GroupScale stored(float scale) const {
    GroupScale c;
    c.half = saturated_half(static_cast<float>(scale * stored_.to_stored), stored_.largest);
    c.decoded = static_cast<float>(f16_to_f32(c.half) / stored_.to_stored);
    c.assigned = c.decoded;
    return c;
  }

  // Alternates assignment to the nearest levels and a least-squares refit of the scale.
  float refit(float scale) const {
    for (int round = 0; round < kRounds; ++round) {
      const Products p = kernels_.products(codebook_.ladder(scale, 1), x_, n_);
      if (!(p.qq > 0) || !(p.xq > 0)) break;
      const float next = p.xq / p.qq;
      if (next == scale) break;
      scale = next;
    }
    return scale;
  }

  GroupScale shape_gain(float scale) const {
    const Products p = kernels_.products(codebook_.ladder(scale, 1), x_, n_);
    const float gain = p.qq > 0 ? std::sqrt(squares_ / p.qq) : scale;
    GroupScale c = stored(gain);
    c.assigned = scale;
    return c;
  }

  float error(const GroupScale& c) const {
    if (c.half == 0) return squares_;
    return kernels_.error(codebook_.ladder(c.assigned, c.decoded), x_, n_);
  }

 private:
  const EncoderKernels& kernels_;
  const Codebook& codebook_;
  const StoredScale& stored_;
  const float* x_;
  int64_t n_;
  float squares_ = 0, rms_ = 0;
};

GroupScale best_scale(const GroupSearch& search, float start, Effort effort) {
  GroupScale best;
  float tried[std::size(kStartFactors)];
  size_t count = 0;
  for (float factor : kStartFactors) {
    const float scale = search.refit(search.rms() * start * factor);
    // Several starts often end at the same scale.
    if (std::find(tried, tried + count, scale) == tried + count) {
      tried[count++] = scale;
      GroupScale c = search.stored(scale);
      if (effort == Effort::fast) return c;
      c.error = search.error(c);
      if (count == 1 || c.error < best.error) best = c;
    }
  }
  return best;
}

}  // namespace

uint16_t saturated_half(float value, float largest) {
  const uint16_t half = f32_to_f16(std::clamp(value, -largest, largest));
  return half == 0x8000u ? uint16_t{0} : half;
}

GroupScale find_scale(const ScalarCode& code, const Codebook& codebook,
                      const EncodeOptions& options, const StoredScale& stored, const float* x,
                      int64_t n) {
  const GroupSearch search(codebook, stored, x, n);
  if (!(search.rms() > 0)) return {};
  const float start = search.rms() * code.start;
  if (code.fit == ScaleFit::sigma) return search.stored(start);
  if (options.scale_rule == ScaleRule::shape_gain) return search.shape_gain(start);
  return best_scale(search, code.start, options.effort);
}

GroupScale refit_scale(const Codebook& codebook, const StoredScale& stored, const float* x,
                       int64_t n, float scale) {
  const GroupSearch search(codebook, stored, x, n);
  GroupScale result = search.stored(search.refit(scale));
  result.error = search.error(result);
  return result;
}

void assign_codes(const Codebook& codebook, const GroupScale& scale, const float* x, int64_t n,
                  uint8_t* codes) {
  if (scale.half == 0) {
    std::fill_n(codes, n, codebook.zero_code());
    return;
  }
  encoder_kernels().assign(codebook.ladder(scale.assigned, 1), x, n, codes);
  for (int64_t i = 0; i < n; ++i)
    codes[i] = codebook.code(codes[i]);
}

uint16_t encode_absmax_group(int bits, const float* x, int64_t n, uint8_t* codes) {
  float signed_max = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(signed_max)) signed_max = x[i];
  }
  const float exact = bits == 8 ? std::fabs(signed_max) / 127 : signed_max / -8;
  const float scale = std::clamp(exact, -kLargestHalf, kLargestHalf);
  const uint16_t half = saturated_half(scale, kLargestHalf);
  const float inverse = half == 0 ? 0.0f : 1 / scale;
  for (int64_t i = 0; i < n; ++i) {
    const float q = x[i] * inverse;
    if (bits == 8) {
      const float rounded = std::clamp(std::round(q), -127.0f, 127.0f);
      codes[i] = static_cast<uint8_t>(static_cast<int8_t>(rounded));
    } else {
      codes[i] = static_cast<uint8_t>(std::clamp(q + 8.5f, 0.0f, 15.0f));
    }
  }
  return half;
}

}  // namespace walsh::detail
