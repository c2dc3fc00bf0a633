#include "codec/codec.h"

#include <cstring>

#include "base/checked.h"
#include "base/half.h"

namespace walsh {
namespace {

constexpr const Codec* kCodecs[] = {&kPlainCodec, &kScalarCodec, &kTrellisCodec, &kProductCodec};

}  // namespace

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

std::span<const Codec* const> all_codecs() {
  return kCodecs;
}

const Codec& codec_of(const Format& format) {
  return *kCodecs[static_cast<size_t>(format.kind)];
}

void check_arrays(const Tensor& tensor) {
  if (const auto check = codec_of(*tensor.format).check) check(tensor);
}

}  // namespace walsh
