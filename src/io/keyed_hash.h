// Hashes keys from untrusted files. The hashes depend on a random number per process, so that
// nobody can write a file whose keys all collide, which would make reading it quadratic. No result
// may depend on the order in such a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace walsh {

// Returns a number that is drawn once per process.
uint64_t hash_secret();

// Returns a hash of the key; all its bits are equally well mixed.
inline uint64_t keyed_hash(uint64_t key, uint64_t secret) {
  uint64_t mixed = key * (secret | 1);
  mixed = (mixed ^ (mixed >> 32)) * 0x9E3779B97F4A7C15u;
  return mixed ^ (mixed >> 32);
}
uint64_t keyed_hash(std::string_view key, uint64_t secret);

// These hash the keys of std::unordered_map and std::unordered_set.
struct IntegerHash {
  uint64_t secret = hash_secret();
  size_t operator()(uint64_t key) const { return keyed_hash(key, secret); }
};
struct StringHash {
  using is_transparent = void;
  uint64_t secret = hash_secret();
  size_t operator()(std::string_view key) const { return keyed_hash(key, secret); }
};

template <typename Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

}  // namespace walsh
