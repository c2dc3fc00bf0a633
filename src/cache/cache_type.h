// This is the registry of KV cache types: it says how keys and values are stored. A coded vector of
// one head and position is padded to a multiple of 32, rotated, and stored as a row of a scalar
// code (codec/format.h); attention is computed in the rotated domain.
//
// Sources: TQ3_0 of a fork of llama.cpp (14 bytes per 32 values), TurboQuant (Zandieh et al. 2025).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "codec/format.h"

namespace walsh {

struct CacheType {
  std::string_view name;
  bool coded = false;          // false: fp16
  ScalarCode code;             // group 0: one scale per vector
  int rotation_block = 0;      // 0: not rotated; vectors are divided as in rotate/rotation.h
  int planes = 1;              // int8 planes of the vectors that codes are multiplied with
  bool largest_scale = false;  // scale = largest magnitude / largest level; codes by distance
  double bound = 0;            // NMSE on N(0,1) that the type must reach (0: none)
  std::string_view note;       // one line for listings
};

// kCacheBundle positions are encoded together, and the first kLeadingPositions of a text stay fp16
// (docs/formats/cache.md).
inline constexpr int kCacheBundle = 32, kLeadingPositions = 4;
inline constexpr uint32_t kCacheRotationSeed = 42;

// As a rotation block this means the whole vector, in one block if its length is a power of two.
inline constexpr int kWholeHead = 1024;

// Returns f16, q8_0, q4_0, tq3_0, tq3_0:seed, kt2, kt3 and kt4.
std::span<const CacheType> all_cache_types();
// Throws usage naming the known types.
const CacheType& get_cache_type(std::string_view name);

// Returns the length of a stored vector: head_dim itself, or a multiple of 32 when coded.
int64_t padded_head_dim(const CacheType& type, int64_t head_dim);
// Returns the number of scales per vector.
int64_t cache_groups(const CacheType& type, int64_t head_dim);
// Returns how many bits are stored per value of a vector, including scales and padding.
double cache_bits(const CacheType& type, int64_t head_dim);

// A model's sessions store keys and values in these types.
struct CacheTypes {
  const CacheType* keys = &get_cache_type("f16");
  const CacheType* values = &get_cache_type("f16");
  // At least this many of the latest positions stay fp16, unless the text is truncated into them
  // later; so do the first ones, which get much of the attention (Xiao et al. 2023).
  int64_t window = 32;

  bool coded() const { return keys->coded || values->coded; }
};

}  // namespace walsh
