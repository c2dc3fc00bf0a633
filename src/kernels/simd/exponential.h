// Computes e^x for vectors, within 2 units in the last place, and the hyperbolic tangent from it.
#pragma once

namespace walsh::simd {

// Returns e^x. It is 0 below -87.3 (where float32 would lose bits) and always finite, because x is
// limited to 88. NaN stays NaN. x is split into n ln 2 + r with |r| <= ln(2)/2, and the Taylor
// series gives e^r; its first omitted term is < 2^-27. ln 2 is split so that n times its first part
// is exact (Cody and Waite 1980).
template <typename V>
inline typename V::Reg exponential(typename V::Reg x) {
  const auto lowest = V::set(-87.3365f);
  const auto cut = V::min(V::set(88.0f), V::max(lowest, x));
  const auto n = V::round(V::mul(cut, V::set(1.44269504f)));
  auto r = V::fma(n, V::set(-0.693359375f), cut);
  r = V::fma(n, V::set(2.12194440e-4f), r);
  auto p = V::set(1.0f / 5040);
  for (const float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = V::fma(p, r, V::set(c));
  }
  return V::zero_below(x, lowest, V::scale_by_power(p, n));
}

// Returns tanh(x) = 1 - 2 / (e^2x + 1), within 2^-22.
template <typename V>
inline typename V::Reg tangent(typename V::Reg x) {
  const auto one = V::set(1.0f);
  return V::sub(one, V::div(V::set(2.0f), V::add(exponential<V>(V::add(x, x)), one)));
}

}  // namespace walsh::simd
