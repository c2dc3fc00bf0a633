// Specifies the element-wise operations and the int8 quantization of activations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/half.h"
#include "kernels/isa_tables.h"

namespace walsh::ref {
namespace {

// Returns the largest magnitude as a bit pattern. NaN is above infinity, and infinity is above all
// numbers.
uint32_t max_magnitude_bits(const float* x, int64_t n) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    if (u > bits) bits = u;
  }
  return bits;
}

// Computes q[i] = round(v * inverse), where v is x[i] or, in the second plane, what the first one
// left of it.
void quantize_plane(const float* x, int64_t n, const int8_t* first, float first_scale,
                    float inverse, int8_t* q, int32_t* sums) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = first ? x[i] - first_scale * static_cast<float>(first[i]) : x[i];
    q[i] = static_cast<int8_t>(std::nearbyint(v * inverse));
    sums[i / 32] = (i % 32 == 0 ? 0 : sums[i / 32]) + q[i];
  }
}

}  // namespace

// Sums squares in double, because inputs of 1e30 are legal.
void rms_norm(const float* x, const float* gain, int64_t n, float eps, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += double{x[i]} * double{x[i]};
  }
  const float inverse =
      static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + double{eps}));
  for (int64_t i = 0; i < n; ++i) {
    out[i] = x[i] * inverse * gain[i];
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  }
}

void sigmoid_mul(const float* gate, const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = x[i] / (1.0f + std::exp(-gate[i]));
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr float kSlope = 0.7978845608f;  // It is sqrt(2 / pi).
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float inner = kSlope * (x + 0.044715f * x * x * x);
    out[i] = 0.5f * x * (1.0f + std::tanh(inner)) * up[i];
  }
}

void soft_cap(float* x, int64_t n, float cap) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = cap * std::tanh(x[i] / cap);
}

// Groups below 2^-100 count as zero, so that the inverse scale stays finite. A group with an
// infinity or NaN gets scale NaN, which makes every product of it NaN.
void quantize_i8(const float* x, ActivationsI8& out, int64_t t) {
  for (int64_t g = 0, begin = 0; begin < out.cols; ++g, begin += out.group) {
    const int64_t n = begin + out.group < out.cols ? out.group : out.cols - begin;
    const uint32_t bits = max_magnitude_bits(x + begin, n);
    const float largest = std::bit_cast<float>(bits);
    const bool finite = bits < 0x7f800000u;
    const bool used = finite && largest >= 0x1p-100f;
    float scale = used ? largest / 127.0f : finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    float inverse = 127.0f / largest;
    const int8_t* first = nullptr;
    float first_scale = 0;
    for (int p = 0; p < out.planes; ++p) {
      const int64_t plane = t * out.planes + p;
      int8_t* q = out.row(plane) + begin;
      int32_t* sums = out.sums.data() + plane * (out.cols / 32) + begin / 32;
      out.scales.data()[plane * out.groups() + g] = scale;
      if (used) {
        quantize_plane(x + begin, n, first, first_scale, inverse, q, sums);
      } else {
        std::fill_n(q, n, int8_t{0});
        std::fill_n(sums, n / 32, 0);
      }
      first = q;
      first_scale = scale;
      scale /= kPlaneRatio;
      inverse *= kPlaneRatio;
    }
  }
}

// The halves of a head are the real and imaginary parts (the convention of Hugging Face
// checkpoints), not neighbouring elements as in the paper (Su et al. 2021).
void rope(float* x, int heads, int head_dim, int rotated, const float* cos, const float* sin) {
  const int half = rotated / 2;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for (int i = 0; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      x[i] = a * cos[i] - b * sin[i];
      x[i + half] = b * cos[i] + a * sin[i];
    }
  }
}

void to_f16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = f32_to_f16(x[i]);
  }
}

void from_f16(const uint16_t* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = f16_to_f32(x[i]);
}

}  // namespace walsh::ref
