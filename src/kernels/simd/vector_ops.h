// Computes the operations on rows over any vector type: those element by element, and the
// conversion of activations to int8. ref/vector_ops.cpp is their specification.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/ops.h"
#include "kernels/simd/exponential.h"

namespace walsh::simd {

// Adds squares up in double, so that large inputs do not overflow and the result is that of ref up
// to the last bit of a double.
template <typename V>
void rms_norm(const float* x, const float* gain, int64_t n, float eps, float* out) {
  constexpr int64_t kWidth = V::kWidth;
  auto even = V::zero_double(), odd = V::zero_double();
  const auto add_squares = [&](typename V::Reg v) {
    const auto low = V::low(v), high = V::high(v);
    even = V::fma(low, low, even);
    odd = V::fma(high, high, odd);
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    add_squares(V::load(x + i));
  if (i < n) add_squares(V::load(x + i, n - i));
  const double sum = V::sum(even) + V::sum(odd);
  const auto inverse = V::set(
      static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(n) + static_cast<double>(eps))));
  for (i = 0; i + kWidth <= n; i += kWidth) {
    V::store(out + i, V::mul(V::mul(V::load(x + i), inverse), V::load(gain + i)));
  }
  if (i < n) {
    const auto v = V::mul(V::mul(V::load(x + i, n - i), inverse), V::load(gain + i, n - i));
    V::store(out + i, v, n - i);
  }
}

// Limits e^-gate to e^88, so that very negative gates give a tiny result and never infinity.
template <typename V>
void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr int64_t kWidth = V::kWidth;
  const auto apply = [](typename V::Reg g, typename V::Reg u) {
    const auto e = exponential<V>(V::sub(V::zero(), g));
    return V::mul(V::div(g, V::add(V::set(1.0f), e)), u);
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    V::store(out + i, apply(V::load(gate + i), V::load(up + i)));
  }
  if (i < n) V::store(out + i, apply(V::load(gate + i, n - i), V::load(up + i, n - i)), n - i);
}

// Limits e^-gate like silu_mul.
template <typename V>
void sigmoid_mul(const float* gate, const float* x, int64_t n, float* out) {
  constexpr int64_t kWidth = V::kWidth;
  const auto apply = [](typename V::Reg g, typename V::Reg v) {
    return V::div(v, V::add(V::set(1.0f), exponential<V>(V::sub(V::zero(), g))));
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    V::store(out + i, apply(V::load(gate + i), V::load(x + i)));
  if (i < n) V::store(out + i, apply(V::load(gate + i, n - i), V::load(x + i, n - i)), n - i);
}

// Computes gelu(x) = x / (1 + e^(-2 t)), t = sqrt(2 / pi) (x + 0.044715 x^3), limited likewise.
template <typename V>
void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
  constexpr int64_t kWidth = V::kWidth;
  const auto apply = [](typename V::Reg g, typename V::Reg u) {
    constexpr float kSlope = -2 * 0.7978845608f;
    const auto cubic = V::fma(V::mul(V::set(0.044715f), V::mul(g, g)), g, g);
    const auto e = exponential<V>(V::mul(V::set(kSlope), cubic));
    return V::mul(V::div(g, V::add(V::set(1.0f), e)), u);
  };
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    V::store(out + i, apply(V::load(gate + i), V::load(up + i)));
  if (i < n) V::store(out + i, apply(V::load(gate + i, n - i), V::load(up + i, n - i)), n - i);
}

template <typename V>
void soft_cap(float* x, int64_t n, float cap) {
  constexpr int64_t kWidth = V::kWidth;
  const auto limit = V::set(cap), inverse = V::set(1 / cap);
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    V::store(x + i, V::mul(limit, tangent<V>(V::mul(V::load(x + i), inverse))));
  if (i < n)
    V::store(x + i, V::mul(limit, tangent<V>(V::mul(V::load(x + i, n - i), inverse))), n - i);
}

// Rounds multiplications and additions one by one, as ref does, so that the results are equal.
template <typename V>
void rope(float* x, int heads, int head_dim, int rotated, const float* cos, const float* sin) {
  constexpr int64_t kWidth = V::kWidth;
  const int64_t half = rotated / 2;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    int64_t i = 0;
    for (; i + kWidth <= half; i += kWidth) {
      const auto a = V::load(x + i), b = V::load(x + half + i);
      const auto c = V::load(cos + i), s = V::load(sin + i);
      V::store(x + i, V::sub(V::mul(a, c), V::mul(b, s)));
      V::store(x + half + i, V::add(V::mul(b, c), V::mul(a, s)));
    }
    if (const int64_t n = half - i; n > 0) {
      const auto a = V::load(x + i, n), b = V::load(x + half + i, n);
      const auto c = V::load(cos + i, n), s = V::load(sin + i, n);
      V::store(x + i, V::sub(V::mul(a, c), V::mul(b, s)), n);
      V::store(x + half + i, V::add(V::mul(b, c), V::mul(a, s)), n);
    }
  }
}

template <typename V>
void to_f16(const float* x, int64_t n, uint16_t* out) {
  constexpr int64_t kWidth = V::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    V::store_f16(out + i, V::load(x + i));
  if (i < n) V::store_f16(out + i, V::load(x + i, n - i), n - i);
}

template <typename V>
void from_f16(const uint16_t* x, int64_t n, float* out) {
  constexpr int64_t kWidth = V::kWidth;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth)
    V::store(out + i, V::load_f16(x + i));
  if (i < n) V::store(out + i, V::load_f16(x + i, n - i), n - i);
}

// Quantizes activations to int8: the same integers and scales as ref, bit for bit.
//
// For the first plane `first` is null. The second plane quantizes x - first_scale * first.
template <typename V>
void quantize_plane(const float* x, int64_t n, const int8_t* first, float first_scale,
                    float inverse, int8_t* q, int32_t* sums) {
  const auto factor = V::set(inverse), unit = V::set(first_scale);
  for (int64_t begin = 0; begin < n; begin += 32) {
    auto total = V::zero_ints();
    for (int64_t i = begin; i < begin + 32; i += V::kWidth) {
      auto v = V::load(x + i);
      if (first) v = V::sub(v, V::mul(unit, V::load_i8(first + i)));
      const auto rounded = V::to_ints(V::mul(v, factor));
      V::store_i8(q + i, rounded);
      total = V::add(total, rounded);
    }
    sums[begin / 32] = V::sum(total);
  }
}

template <typename V>
void quantize_i8(const float* x, ActivationsI8& out, int64_t t) {
  const int64_t cols = out.cols, group = out.group, groups = out.groups();
  const int planes = out.planes;
  for (int64_t g = 0, begin = 0; begin < cols; ++g, begin += group) {
    const int64_t n = begin + group < cols ? group : cols - begin;
    auto magnitude = V::zero_ints();
    for (int64_t i = 0; i < n; i += V::kWidth) {
      magnitude = V::max_magnitude(magnitude, V::load(x + begin + i));
    }
    const float largest = std::bit_cast<float>(V::largest(magnitude));
    const bool finite = largest <= std::numeric_limits<float>::max();
    const bool used = finite && largest >= 0x1p-100f;
    float scale = used ? largest / 127.0f : finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    float inverse = used ? 127.0f / largest : 0;
    const int8_t* first = nullptr;
    float first_scale = 0;
    for (int p = 0; p < planes; ++p) {
      const int64_t plane = t * planes + p;
      int8_t* q = out.row(plane) + begin;
      int32_t* sums = out.sums.data() + plane * (cols / 32) + begin / 32;
      out.scales.data()[plane * groups + g] = scale;
      if (used) {
        quantize_plane<V>(x + begin, n, first, first_scale, inverse, q, sums);
      } else {
        for (int64_t i = 0; i < n; ++i)
          q[i] = 0;
        for (int64_t i = 0; i < n / 32; ++i)
          sums[i] = 0;
      }
      first = q;
      first_scale = scale;
      scale /= kPlaneRatio;
      inverse *= kPlaneRatio;
    }
  }
}

}  // namespace walsh::simd
