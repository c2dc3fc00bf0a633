#include "codec/scalar/encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/aligned.h"
#include "base/cpu.h"
#include "base/half.h"
#include "codec/scalar/encoder_search.h"
#include "codec/tensor.h"

namespace walsh {
namespace detail {

const EncoderKernels& encoder_kernels() {
  switch (current_isa()) {
    case Isa::ref:
      return kEncoderRef;
    case Isa::avx2:
      return kEncoderAvx2;
    default:
      return kEncoderAvx512;
  }
}

namespace {

class RowEncoder {
 public:
  RowEncoder(const ScalarCode& code, const EncodeOptions& options, int64_t padded)
      : code_(code),
        options_(options),
        kernels_(encoder_kernels()),
        padded_(padded),
        group_(code.group == 0 ? padded : code.group),
        values_(static_cast<size_t>(std::min(group_, padded))),
        codes_(static_cast<size_t>(padded)) {
    if (code.levels != nullptr && code.fit != ScaleFit::absmax) codebook_.emplace(code);
  }

  // Encodes a row. `out` points at the row's own codes, scales, offsets and sub-scales.
  void encode(const float* x, const PassOutput& out) {
    for (int64_t begin = 0, g = 0; begin < padded_; begin += group_, ++g) {
      const Group group{x + begin, std::min(group_, padded_ - begin), codes_.data() + begin};
      if (code_.fit == ScaleFit::absmax) {
        out.scales[g] = encode_absmax_group(code_.bits, group.x, group.n, group.codes);
        continue;
      }
      normalize(group);
      if (code_.has_offset) subtract_offset(group, mean_offset(group));
      out.scales[g] = code_.sub_group == 0
                          ? encode_whole(group)
                          : encode_sub_groups(group, out.sub_scales + begin / code_.sub_group);
      if (code_.has_offset) out.offsets[g] = offset_;
    }
    pack_codes(code_, codes_.data(), padded_, out.codes);
  }

 private:
  struct Group {
    const float* x;
    int64_t n;
    uint8_t* codes;
  };

  // Computes values_ <- x * 2^-exponent_, with the largest near 1.
  void normalize(const Group& group) {
    const float largest = kernels_.abs_max(group.x, group.n);
    // This keeps 2^exponent and its inverse normal floats.
    exponent_ = largest > 0 ? std::clamp(std::ilogb(largest), -120, 126) : 0;
    kernels_.scale_shift(group.x, group.n, factor(), 0, values_.data());
  }

  float factor() const { return std::ldexp(1.0f, -exponent_); }

  uint16_t mean_offset(const Group& group) const {
    if (code_.fit == ScaleFit::sigma) return 0;
    const float mean = kernels_.sum(values_.data(), group.n) / static_cast<float>(group.n);
    return saturated_half(std::ldexp(mean, exponent_), kLargestHalf);
  }

  // Computes values_ <- (x - offset) * 2^-exponent_.
  void subtract_offset(const Group& group, uint16_t offset) {
    offset_ = offset;
    const float shift = f16_to_f32(offset) * factor();
    kernels_.scale_shift(group.x, group.n, factor(), shift, values_.data());
  }

  uint16_t encode_whole(const Group& group) {
    const StoredScale stored{std::ldexp(1.0, exponent_), kLargestHalf};
    GroupScale scale = find_scale(code_, *codebook_, options_, stored, values_.data(), group.n);
    assign_codes(*codebook_, scale, values_.data(), group.n, group.codes);
    const bool searched = code_.fit == ScaleFit::search && options_.effort == Effort::full &&
                          options_.scale_rule == ScaleRule::search;
    if (code_.has_offset && searched && scale.half != 0) refine_offset(group, stored, scale);
    return scale.half;
  }

  // The mean of the differences is the least-squares correction of the offset. The offset takes
  // away one of the group's n degrees of freedom (0.4 % of the error at n = 256).
  void refine_offset(const Group& group, const StoredScale& stored, GroupScale& scale) {
    double left = 0;
    for (int64_t i = 0; i < group.n; ++i) {
      const float level = code_.levels[group.codes[i]];
      left += static_cast<double>(values_[static_cast<size_t>(i)] - scale.decoded * level);
    }
    const uint16_t before = offset_;
    const double mean = std::ldexp(left / static_cast<double>(group.n), exponent_);
    const double wanted = static_cast<double>(f16_to_f32(before)) + mean;
    subtract_offset(group, saturated_half(static_cast<float>(wanted), kLargestHalf));
    const GroupScale again =
        refit_scale(*codebook_, stored, values_.data(), group.n, scale.decoded);
    if (again.error < scale.error && again.half != 0) {
      scale = again;
      assign_codes(*codebook_, scale, values_.data(), group.n, group.codes);
    } else {
      offset_ = before;
    }
  }

  // Returns d, a power of two that brings the largest sub-scale near 1. d * sub_scale then only
  // moves the exponent of the sub-scale.
  uint16_t encode_sub_groups(const Group& group, uint16_t* sub_scales) {
    float largest = 0;  // It is the mean square of a sub-group.
    for (int64_t i = 0; i < group.n; i += code_.sub_group) {
      const int64_t n = std::min<int64_t>(code_.sub_group, group.n - i);
      const float squares = kernels_.sum_squares(values_.data() + i, n);
      largest = std::max(largest, squares / static_cast<float>(n));
    }
    uint16_t d = 0;
    StoredScale stored;
    if (largest > 0) {
      const int power = static_cast<int>(std::lround(std::log2(std::sqrt(largest)))) + exponent_;
      const int clamped = std::clamp(power, -24, 15);
      const float d_value = std::ldexp(1.0f, clamped);
      d = f32_to_f16(d_value);
      stored = {std::ldexp(1.0, exponent_ - clamped),
                std::min(kLargestHalf, kLargestHalf / d_value)};
    }
    for (int64_t i = 0; i < group.n; i += code_.sub_group) {
      const int64_t n = std::min<int64_t>(code_.sub_group, group.n - i);
      const float* x = values_.data() + i;
      const GroupScale scale = find_scale(code_, *codebook_, options_, stored, x, n);
      assign_codes(*codebook_, scale, x, n, group.codes + i);
      *sub_scales++ = scale.half;
    }
    return d;
  }

  const ScalarCode& code_;
  const EncodeOptions& options_;
  const EncoderKernels& kernels_;
  int64_t padded_, group_;
  // Holds the current group, shifted and scaled by a power of two.
  AlignedArray<float> values_;
  std::vector<uint8_t> codes_;
  std::optional<Codebook> codebook_;
  int exponent_ = 0;     // The current group is scaled by 2^-exponent_.
  uint16_t offset_ = 0;  // It is the fp16 offset of the current group.
};

}  // namespace
}  // namespace detail

void encode_rows(const ScalarCode& code, const EncodeOptions& options, const float* x, int64_t rows,
                 int64_t padded, const PassOutput& out) {
  detail::RowEncoder encoder(code, options, padded);
  const int64_t groups = groups_per_row(code, padded);
  const int64_t sub_groups = sub_groups_per_row(code, padded);
  PassOutput row_out = out;
  for (int64_t row = 0; row < rows; ++row, x += padded) {
    encoder.encode(x, row_out);
    row_out.codes += code_bytes_per_row(code, padded);
    row_out.scales += groups;
    if (code.has_offset) row_out.offsets += groups;
    if (code.sub_group != 0) row_out.sub_scales += sub_groups;
  }
}

}  // namespace walsh
