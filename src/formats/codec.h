// A kind of code: what other code may ask of a format without knowing which kinds exist. The few
// places that do know, because the work differs, are listed in docs/formats/README.md ("A new kind
// of code").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/device.h"
#include "formats/tensor.h"

namespace walsh {

struct Codec {
  // Returns the stored arrays of a pass of [rows, padded] weights, in file order.
  std::vector<PassField> (*fields)(const Format& format, int pass, int64_t rows, int64_t padded);
  // Dequantizes one row of a pass in its rotated basis to out[padded]. This is the specification.
  void (*decode_row)(const Tensor& tensor, int pass, int64_t row, float* out);
  // Writes the fp16 numbers whose product is the scale of a weight to `halves`, without those that
  // are powers of two. Returns how many there are: one or two.
  int (*scales)(const Tensor& tensor, int pass, int64_t row, int64_t col, uint16_t (&halves)[2]);
  // Returns the root mean square of the levels of a pass, if all codes are equally frequent.
  double (*level_rms)(const Format& format, int pass);
  bool (*on_gpu)(const Format& format);  // whether GPU kernels dequantize it
  bool slow_to_encode;  // takes minutes for a model on many cores; others take seconds
};

// One per CodeKind, in scalar.cpp, trellis.cpp and product.cpp.
extern const Codec kScalarCodec, kTrellisCodec, kProductCodec;

// Returns the codec of a coded format; throws internal for a dense one.
const Codec& codec_of(const Format& format);

// Returns why no kernel on `device` computes with tensors of a format, whatever their rotation;
// empty if one does.
std::string why_not(const Device& device, const Format& format);

namespace detail {

uint16_t half_bits(std::span<const std::byte> halves, int64_t index);
float half_at(std::span<const std::byte> halves, int64_t index);
// Returns count * element; throws on overflow.
uint64_t bytes_of(int64_t count, uint64_t element);

}  // namespace detail

}  // namespace walsh
