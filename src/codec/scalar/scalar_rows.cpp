#include "codec/scalar/scalar_rows.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "codec/scalar/encoder_search.h"
#include "codec/tensor.h"

namespace walsh::detail {
namespace {

// A factor outside of these bounds does not correct a scale; it means that the row was lost.
constexpr double kLeastFactor = 0.5, kLargestFactor = 2;

}  // namespace

ValueRounder::ValueRounder(const ScalarCode& code) {
  if (code.levels == nullptr) return;
  codebook_.emplace(code);
  ladder_ = codebook_->ladder(1, 1);
}

ValueRounder::Rounded ValueRounder::operator()(float x, float scale, float offset) const {
  if (scale == 0) return {codebook_ ? codebook_->zero_code() : uint8_t{0}, offset};
  const float u = (x - offset) / scale;
  if (!codebook_) {
    const float level = std::clamp(std::round(u), -127.0f, 127.0f);
    return {static_cast<uint8_t>(static_cast<int8_t>(level)), scale * level + offset};
  }
  int rank = 0;
  for (int t = 0; t + 1 < ladder_.count; ++t)
    rank += u > ladder_.thresholds[t];
  return {codebook_->code(static_cast<uint8_t>(rank)), scale * ladder_.levels[rank] + offset};
}

ScalarRows::ScalarRows(const ScalarCode& code, const EncodeOptions& options, int64_t count,
                       int64_t padded)
    : code_(code),
      options_(options),
      padded_(padded),
      group_(code.group == 0 ? padded : code.group),
      round_(code),
      codes_(static_cast<size_t>(count * padded)),
      rows_(static_cast<size_t>(count)) {
  for (RowScales& row : rows_) {
    const auto groups = static_cast<size_t>(groups_per_row(code, padded_));
    row.scales.resize(groups);
    if (code.has_offset) row.offsets.resize(groups);
    row.sub_scales.resize(static_cast<size_t>(sub_groups_per_row(code, padded_)));
  }
}

bool ScalarRows::has_factors() const {
  return code_.fit == ScaleFit::search && options_.scale_rule == ScaleRule::search;
}

void ScalarRows::choose_scales(int64_t r, int64_t begin, const float* wanted, int64_t n) {
  RowScales& row = rows_[static_cast<size_t>(r)];
  std::vector<std::byte> unused(static_cast<size_t>(code_bytes_per_row(code_, padded_)));
  const auto group = static_cast<size_t>(begin / group_);
  PassOutput out;
  out.codes = unused.data();
  out.scales = &row.scales[group];
  if (code_.has_offset) out.offsets = &row.offsets[group];
  if (code_.sub_group != 0) {
    out.sub_scales = &row.sub_scales[static_cast<size_t>(begin / code_.sub_group)];
  }
  encode_rows(code_, options_, wanted, 1, n, out);
}

float ScalarRows::round(int64_t r, int64_t j, float target) {
  const RowScales& row = rows_[static_cast<size_t>(r)];
  const auto group = static_cast<size_t>(j / group_);
  float scale = f16_to_f32(row.scales[group]);
  if (code_.sub_group != 0) {
    scale *= f16_to_f32(row.sub_scales[static_cast<size_t>(j / code_.sub_group)]);
  }
  const float offset = code_.has_offset ? f16_to_f32(row.offsets[group]) : 0.0f;
  const ValueRounder::Rounded rounded = round_(target, scale, offset);
  codes_[static_cast<size_t>(r * padded_ + j)] = rounded.code;
  return rounded.value;
}

void ScalarRows::store(int64_t r, double wanted, const PassOutput& out) const {
  const double factor = std::clamp(wanted, kLeastFactor, kLargestFactor);
  const RowScales& row = rows_[static_cast<size_t>(r)];
  const auto scaled = [&](uint16_t half) {
    return saturated_half(static_cast<float>(double{f16_to_f32(half)} * factor), kLargestHalf);
  };
  pack_codes(code_, codes_.data() + r * padded_, padded_, out.codes);
  for (size_t g = 0; g < row.scales.size(); ++g) {
    out.scales[g] = code_.sub_group == 0 ? scaled(row.scales[g]) : row.scales[g];
    if (code_.has_offset) out.offsets[g] = scaled(row.offsets[g]);
  }
  for (size_t g = 0; g < row.sub_scales.size(); ++g)
    out.sub_scales[g] = scaled(row.sub_scales[g]);
}

}  // namespace walsh::detail
