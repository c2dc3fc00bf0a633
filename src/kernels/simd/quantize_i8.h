// Activations to int8 over any vector type; the same integers and scales as ref, bit for bit.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/ops.h"

namespace walsh::simd {

// For the first plane `first` is null; the second plane quantizes x - first_scale * first.
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
      int8_t* q = out.q.data() + plane * cols + begin;
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
      scale /= 254.0f;
      inverse *= 254.0f;
    }
  }
}

}  // namespace walsh::simd
