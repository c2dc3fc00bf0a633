// Defines the types of KV caches, i.e. how keys and values are stored; cache_type.cpp has their
// registry. A coded vector of one head and position is padded to a multiple of 32, rotated, and
// stored as a row of a scalar code (codec/format.h). Attention is computed in the rotated domain.
//
// Sources: TQ3_0 of a fork of llama.cpp (14 bytes per 32 values), TurboQuant (Zandieh et al. 2025).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "codec/format.h"

namespace walsh {

struct CacheType {
  std::string_view name;
  bool coded = false;  // If false, the cache stores fp16.
  ScalarCode code;     // Group 0 means one scale per vector.
  // With 0 vectors are not rotated; otherwise they are divided as in rotate/rotation.h.
  int rotation_block = 0;
  // The vectors that codes are multiplied with have this many int8 planes.
  int planes = 1;
  // If true, scale = largest magnitude / largest level, and codes are chosen by distance.
  bool largest_scale = false;
  double bound = 0;       // The type must reach this NMSE on N(0,1); 0: there is no bound.
  std::string_view note;  // Listings show it in one line.
};

// kCacheBundle positions are encoded together. The first kLeadingPositions of a text stay fp16
// (docs/formats/cache.md).
inline constexpr int kCacheBundle = 32, kLeadingPositions = 4;
inline constexpr uint32_t kCacheRotationSeed = 42;

// As a rotation block this means the whole vector, in one block if its length is a power of two.
inline constexpr int kWholeHead = 1024;

// Returns all types: f16, q8_0, q4_0, tq3_0, tq3_0:seed, kt2, kt3 and kt4.
std::span<const CacheType> all_cache_types();
// Returns the type with this name. Throws usage with the known types for others.
const CacheType& get_cache_type(std::string_view name);

// Returns the length of a stored vector, which is head_dim, rounded up to a multiple of 32 for
// coded types.
int64_t padded_head_dim(const CacheType& type, int64_t head_dim);
// Returns the number of scales per vector.
int64_t cache_groups(const CacheType& type, int64_t head_dim);
// Returns how many bits a value of a vector takes, scales and padding included.
double cache_bits(const CacheType& type, int64_t head_dim);

// Returns whether GPUs have kernels for coded keys and values of heads of this size.
constexpr bool is_coded_head(int64_t head_dim) {
  return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

// Holds the types in which a model's sessions store keys and values.
struct CacheTypes {
  const CacheType* keys = &get_cache_type("f16");
  const CacheType* values = &get_cache_type("f16");
  // At least this many of the latest positions stay fp16, unless the text is truncated into them
  // later. The first positions stay fp16, too, because they get much of the attention (Xiao et al.
  // 2023).
  int64_t window = 32;

  bool coded() const { return keys->coded || values->coded; }
};

// Returns why GPUs do not have these coded types, for heads of this size; empty if they do.
std::string why_not_on_gpus(const CacheTypes& types, int64_t head_dim);

}  // namespace walsh
