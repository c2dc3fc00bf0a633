#include "formats/codec.h"

#include <fmt/format.h>

#include <cstring>

#include "base/checked.h"
#include "base/half.h"
#include "walsh/error.h"

namespace walsh {

namespace detail {

uint16_t half_bits(std::span<const std::byte> halves, int64_t index) {
  uint16_t h;
  std::memcpy(&h, halves.data() + 2 * index, 2);
  return h;
}

float half_at(std::span<const std::byte> halves, int64_t index) {
  return f16_to_f32(half_bits(halves, index));
}

uint64_t bytes_of(int64_t count, uint64_t element) {
  return checked_mul(static_cast<uint64_t>(count), element, "shape");
}

}  // namespace detail

const Codec& codec_of(const Format& format) {
  switch (format.kind) {
    case CodeKind::scalar:
      return kScalarCodec;
    case CodeKind::trellis:
      return kTrellisCodec;
    case CodeKind::product:
      return kProductCodec;
    case CodeKind::none:
      break;
  }
  throw Error(ErrorCode::internal, std::string(format.name), "has no codes");
}

std::string why_not(const Device& device, const Format& format) {
  if (!device.cuda || format.dense || codec_of(format).on_gpu(format)) return {};
  return fmt::format("there are no GPU kernels for {}: use --device cpu", format.name);
}

}  // namespace walsh
