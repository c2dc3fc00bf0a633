// A kind of code: what others ask of a format without knowing which kinds there are. Those that
// know, because the work differs, are listed in docs/formats/README.md ("A new kind of code").
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
  // The stored arrays of a pass of [rows, padded] weights, in file order.
  std::vector<PassField> (*fields)(const Format& format, int pass, int64_t rows, int64_t padded);
  // One row of a pass in its rotated basis, out[padded]: the specification.
  void (*decode_row)(const Tensor& tensor, int pass, int64_t row, float* out);
  // The fp16 numbers whose product is the scale of a weight, those left out that are powers of two:
  // one or two, written to `halves`.
  int (*scales)(const Tensor& tensor, int pass, int64_t row, int64_t col, uint16_t (&halves)[2]);
  // Root mean square of the levels of a pass, all codes being equally frequent.
  double (*level_rms)(const Format& format, int pass);
  bool (*on_gpu)(const Format& format);  // whether GPU kernels decode it
  bool slow_to_encode;  // minutes for a model on many cores, where others take seconds
};

// One for each CodeKind, in scalar.cpp, trellis.cpp and product.cpp.
extern const Codec kScalarCodec, kTrellisCodec, kProductCodec;

// Of a coded format; throws internal for a dense one.
const Codec& codec_of(const Format& format);

// Why nothing on `device` computes with tensors of a format, however they are rotated; empty if
// something does.
std::string why_not(const Device& device, const Format& format);

namespace detail {

uint16_t half_bits(std::span<const std::byte> halves, int64_t index);
float half_at(std::span<const std::byte> halves, int64_t index);
// count * element; throws on overflow.
uint64_t bytes_of(int64_t count, uint64_t element);

}  // namespace detail

}  // namespace walsh
