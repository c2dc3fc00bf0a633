#include "codec/scalar/cuda/encode_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/checked.h"
#include "codec/scalar/cuda/span_memory.h"
#include "codec/scalar/encoder_codebook.h"
#include "codec/scalar/encoder_search.h"

namespace walsh::cuda::encoding {
namespace {

std::optional<GroupKind> kind_of(const Format& format, const ScalarCode& code) {
  if (format.kind != CodeKind::scalar) return std::nullopt;
  if (code.fit == ScaleFit::absmax) {
    const bool known = (code.bits == 4 || code.bits == 8) && code.group == 32;
    return known ? std::optional(GroupKind::absmax) : std::nullopt;
  }
  if (code.levels == nullptr || code.bits < 2 || code.bits > 4) return std::nullopt;
  if (code.group == 128 && code.sub_group == 0 && !code.has_offset) return GroupKind::plain;
  if (code.group == 0 && code.sub_group == 0 && !code.has_offset) return GroupKind::row;
  if (code.group != 256 || !code.has_offset || code.bits != 3) return std::nullopt;
  if (code.sub_group == 0) return GroupKind::offset;
  return code.sub_group == 32 ? std::optional(GroupKind::sub_groups) : std::nullopt;
}

}  // namespace

std::optional<Levels> levels_of(const ScalarCode& code, int& thresholds) {
  const detail::Codebook codebook(code);
  const detail::Ladder ladder = codebook.ladder(1, 1);
  const int count = ladder.count;
  for (int i = 0; i < count; ++i) {
    if (ladder.levels[i] != -ladder.levels[count - 1 - i]) return std::nullopt;
  }
  const int magnitudes = (count + 1) / 2;
  thresholds = magnitudes - 1;
  Levels levels{};
  std::fill_n(levels.midpoint, kMaxThresholds, std::numeric_limits<float>::infinity());
  for (int k = 0; k <= kMaxThresholds; ++k) {
    const int index = std::min(k, magnitudes - 1);
    const int positive = count / 2 + index, negative = (count - 1) / 2 - index;
    levels.magnitude[k] = ladder.levels[positive];
    if (k < thresholds) levels.midpoint[k] = ladder.thresholds[positive];
    const uint64_t positive_code = codebook.code(static_cast<uint8_t>(positive));
    const uint64_t negative_code = codebook.code(static_cast<uint8_t>(negative));
    levels.codes |= positive_code << (4 * k) | negative_code << (4 * (8 + k));
  }
  levels.zero_code = codebook.zero_code();
  return levels;
}

namespace {

// Computes from which mantissa on lround(log2(s)) of a float gives the next exponent. That is the
// square root of 2, rounded as the encoder's own functions do, which depends on how many digits the
// exponent leaves.
void fill_powers(SearchRule& rule) {
  constexpr uint32_t kRoot = 0x3504f3;  // It is the square root of 2 without the leading 1.
  constexpr uint32_t kAround = 256;
  for (int i = 0; i < kPowers; ++i) {
    const int e = kLeastPower + i;
    const auto exponent = static_cast<uint32_t>(e + 127) << 23;
    uint32_t mantissa = kRoot - kAround;
    while (mantissa < kRoot + kAround &&
           std::lround(std::log2(std::bit_cast<float>(exponent | mantissa))) <= e) {
      ++mantissa;
    }
    rule.power_mantissa[i] = mantissa;
  }
}

SearchRule rule_of(const ScalarCode& code, const EncodeOptions& options) {
  static_assert(std::size(detail::kStartFactors) == kStarts);
  SearchRule rule{};
  rule.start = code.start;
  std::copy_n(detail::kStartFactors, kStarts, rule.factors);
  rule.sigma = code.fit == ScaleFit::sigma;
  rule.shape_gain = options.scale_rule == ScaleRule::shape_gain;
  rule.all_starts = options.effort == Effort::full && !rule.sigma && !rule.shape_gain;
  if (code.sub_group != 0) fill_powers(rule);
  return rule;
}

}  // namespace

std::vector<float> rotation_factors(const Rotation& rotation, int64_t padded) {
  std::vector<float> factors(static_cast<size_t>(padded));
  for (const Segment& s : rotation_segments(padded, rotation.block)) {
    const auto norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.size)));
    for (int64_t i = s.offset; i < s.offset + s.size; ++i) {
      const float sign =
          rotation.signs ? rotation_sign(rotation.seed, static_cast<uint64_t>(i)) : 1.0f;
      factors[static_cast<size_t>(i)] = sign * norm;
    }
  }
  return factors;
}

std::optional<PassPlan> plan_pass(const Format& format, int pass, const Rotation& rotation,
                                  const EncodeOptions& options, int64_t cols) {
  const ScalarCode& code = format.code[pass];
  const std::optional<GroupKind> kind = kind_of(format, code);
  const int64_t padded = padded_cols(format, cols);
  if (!kind || rotation.kind == RotationKind::qr || padded > (int64_t{1} << 30)) return {};
  const Rotator checked(rotation, padded);  // This throws for a rotation that is not possible.

  PassPlan plan;
  plan.kind = *kind;
  PassArgs& args = plan.args;
  if (plan.kind != GroupKind::absmax) {
    const std::optional<Levels> levels = levels_of(code, plan.thresholds);
    if (!levels) return {};
    args.levels = *levels;
    plan.thresholds = plan.thresholds <= 1 ? 1 : plan.thresholds <= 3 ? 3 : kMaxThresholds;
    if (plan.kind == GroupKind::sub_groups) plan.thresholds = 3;
  }
  args.stage = pass == 0 ? kTooLarge : kTooLargeInResidual;
  args.padded = padded;
  args.span = plan.kind == GroupKind::row ? static_cast<int>(round_up(padded, kSpan)) : kSpan;
  args.spans = static_cast<int>((padded + args.span - 1) / args.span);
  args.bits = code.bits;
  args.rule = rule_of(code, options);
  args.code_words = code_bytes_per_row(code, padded) / 4;
  args.groups = groups_per_row(code, padded);
  args.sub_groups = sub_groups_per_row(code, padded);
  if (rotation.kind == RotationKind::hadamard) {
    args.block = rotation.block;
    args.whole_blocks = padded / rotation.block * rotation.block;
    plan.factors = rotation_factors(rotation, padded);
  }
  plan.shared_bytes = span_layout(plan.kind, args.span).bytes;
  return plan;
}

}  // namespace walsh::cuda::encoding
