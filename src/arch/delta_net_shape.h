// The shape of a delta net, for its description and, with ints, for the kernels of GPUs.
#pragma once

#include <cstdint>

namespace walsh {

// A row of channels has queries, keys, then values, or values, keys, then queries if the net is
// additive.
template <typename Int>
struct DeltaNetShape {
  // key_heads divides value_heads; 0: there is no delta net.
  Int key_heads = 0, value_heads = 0;
  Int key_dim = 0, value_dim = 0;  // They are sizes of heads, multiples of 16.
  Int taps = 0;                    // The convolution has 2 to 16 taps.
  bool additive = false;

  // Returns how many value heads read one key head.
  constexpr Int group() const { return value_heads / key_heads; }
  constexpr Int key_width() const { return key_heads * key_dim; }
  constexpr Int value_width() const { return value_heads * value_dim; }
  constexpr Int channels() const { return 2 * key_width() + value_width(); }
  constexpr int64_t state_floats() const { return int64_t{value_heads} * key_dim * value_dim; }
  // These return where the query, the key and the value of a value head begin among the channels.
  constexpr Int query_of(Int head) const {
    return (additive ? value_width() + key_width() : 0) + head / group() * key_dim;
  }
  constexpr Int key_of(Int head) const {
    return (additive ? value_width() : key_width()) + head / group() * key_dim;
  }
  constexpr Int value_of(Int head) const {
    return (additive ? 0 : 2 * key_width()) + head * value_dim;
  }
};

}  // namespace walsh
