// Implements the codec of scalar codes: value = scale * level[code] (+ offset).
#include <cmath>

#include "codec/kernels.h"
#include "codec/scalar/group_profiles.h"
#include "codec/scalar/panels.h"
#include "codec/scalar/scalar_tensor.h"

namespace walsh {
namespace {

using detail::bytes_of;
using detail::half_at;

std::vector<PassField> fields(const Format& format, int pass, int64_t rows, int64_t padded) {
  const ScalarCode& code = format.code[pass];
  const uint64_t groups = bytes_of(groups_per_row(code, padded), 2);
  std::vector<PassField> fields = {
      {"codes", &PassArrays::codes, rows, bytes_of(code_bytes_per_row(code, padded), 1)},
      {"scales", &PassArrays::scales, rows, groups}};
  if (code.has_offset) fields.push_back({"offsets", &PassArrays::offsets, rows, groups});
  if (code.sub_group != 0) {
    fields.push_back({"sub_scales", &PassArrays::sub_scales, rows,
                      bytes_of(sub_groups_per_row(code, padded), 2)});
  }
  return fields;
}

void decode_row(const Tensor& tensor, int pass, int64_t row, float* out) {
  const ScalarCode& code = tensor.format->code[pass];
  const PassArrays& arrays = tensor.pass[pass];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  const int64_t groups = groups_per_row(code, padded);
  const int64_t sub_groups = sub_groups_per_row(code, padded);

  std::vector<uint8_t> codes(static_cast<size_t>(padded));
  unpack_codes(code, arrays.codes.data() + row * code_bytes_per_row(code, padded), padded,
               codes.data());
  for (int64_t begin = 0, g = 0; begin < padded; ++g) {
    const int64_t end = code.group == 0 ? padded : std::min(padded, begin + code.group);
    const float d = half_at(arrays.scales, row * groups + g);
    const float z = code.has_offset ? half_at(arrays.offsets, row * groups + g) : 0.0f;
    float scale = d;
    for (int64_t i = begin; i < end; ++i) {
      if (code.sub_group != 0 && i % code.sub_group == 0) {
        scale = d * half_at(arrays.sub_scales, row * sub_groups + i / code.sub_group);
      }
      const uint8_t c = codes[static_cast<size_t>(i)];
      const float level =
          code.bits == 8 ? static_cast<float>(static_cast<int8_t>(c)) : code.levels[c];
      out[i] = scale * level + z;
    }
    begin = end;
  }
}

// A weight has one scale, or a scale that is a power of two and a sub-scale that has the precision.
int scales(const Tensor& tensor, int pass, int64_t row, int64_t col, uint16_t (&halves)[2]) {
  const ScalarCode& code = tensor.format->code[pass];
  const PassArrays& arrays = tensor.pass[pass];
  const int64_t padded = padded_cols(*tensor.format, tensor.cols);
  if (code.sub_group != 0) {
    halves[0] = detail::half_bits(arrays.sub_scales,
                                  row * sub_groups_per_row(code, padded) + col / code.sub_group);
  } else {
    halves[0] = detail::half_bits(arrays.scales, row * groups_per_row(code, padded) +
                                                     (code.group == 0 ? 0 : col / code.group));
  }
  return 1;
}

double level_rms(const Format& format, int pass) {
  const ScalarCode& code = format.code[pass];
  const int count = 1 << code.bits;
  double sum = 0;
  for (int i = 0; i < count; ++i) {
    const double level = code.levels != nullptr ? code.levels[i] : i - count / 2;
    sum += level * level;
  }
  return std::sqrt(sum / count);
}

double pass_cost(const ScalarCode& code, const EncodeOptions& options) {
  if (code.fit == ScaleFit::absmax) return 11;
  if (code.fit == ScaleFit::sigma) return 8;
  const bool searched = options.effort == Effort::full && options.scale_rule == ScaleRule::search;
  const double search = searched ? 14 + 2 * std::ldexp(1.0, code.bits) : 8;
  return code.sub_group == 0 ? search : 1.8 * search;
}

double cost(const Format& format, const EncodeOptions& options) {
  double cost = 0;
  for (int pass = 0; pass < format.passes; ++pass)
    cost += pass_cost(format.code[pass], options);
  return cost;
}

bool fits_scales(const Format& format) {
  for (int pass = 0; pass < format.passes; ++pass)
    if (format.code[pass].fit == ScaleFit::search) return true;
  return false;
}

bool searches(const Format& format, const EncodeOptions& options) {
  return fits_scales(format) && options.scale_rule == ScaleRule::search;
}

const Format* find_profile(std::string_view name) {
  static const GroupProfiles profiles(all_formats());
  return profiles.find(name);
}

// Returns whether GPU kernels know the format. None is tested with the smaller groups of a profile,
// and none decodes what GGUF files have and walsh does not write.
bool on_gpu(const Format& format) {
  const ScalarCode& code = format.code[0];
  if (code.bits == 5 || code.bits == 6 || (code.group != 0 && code.group < 32)) return false;
  return !is_group_profile(format);
}

// Returns whether a kernel knows the format. Weights can be rotated back in tiles of at most four
// bits.
bool knows(const Format& format, Kernel kernel) {
  if (kernel == Kernel::cpu_products) return true;
  if (kernel == Kernel::cpu_lookup || !on_gpu(format)) return false;
  if (kernel != Kernel::gpu_weight_side) return true;
  for (int pass = 0; pass < format.passes; ++pass)
    if (format.code[pass].bits > kMostWeightSideBits) return false;
  return true;
}

OpCount count_pass(const ScalarCode& code, int64_t rows, int64_t padded, int planes) {
  const int64_t groups = groups_per_row(code, padded);
  const int64_t scales = code.sub_group != 0 ? sub_groups_per_row(code, padded) : groups;
  const int64_t of_row = padded + scales + (code.has_offset ? groups : 0);
  OpCount ops;
  ops.multiplications = ops.additions = static_cast<uint64_t>(rows * of_row * planes);
  ops.lookups = code.bits == 8 ? 0 : static_cast<uint64_t>(rows * padded);
  return ops;
}

OpCount count(const Format& format, int64_t rows, int64_t padded, int planes) {
  OpCount ops;
  for (int pass = 0; pass < format.passes; ++pass)
    ops += count_pass(format.code[pass], rows, padded, planes);
  return ops;
}

}  // namespace

const Codec kScalarCodec = {
    .name = "scalar",
    .fields = fields,
    .decode_row = decode_row,
    .scales = scales,
    .level_rms = level_rms,
    .encode = detail::encode_scalar,
    .encode_with_feedback = detail::encode_scalar_with_feedback,
    .encode_two_sided = detail::encode_scalar_two_sided,
    .cost = cost,
    .searches = searches,
    .fits_scales = fits_scales,
    .find_profile = find_profile,
    .pack = detail::pack_scalar,
    .unpack = detail::unpack_scalar,
    .has_kernel = knows,
    .count = count,
};

}  // namespace walsh
