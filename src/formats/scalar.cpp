// Scalar codes: value = scale * level[code] (+ offset).
#include <cmath>

#include "formats/codec.h"
#include "formats/group_profiles.h"

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

// With sub-scales, the scale is a power of two, and the sub-scales have the remaining precision.
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

// No GPU kernel is tested with the smaller groups of a profile.
bool on_gpu(const Format& format) {
  return !is_group_profile(format);
}

}  // namespace

const Codec kScalarCodec = {fields, decode_row, scales, level_rms, on_gpu, false};

}  // namespace walsh
