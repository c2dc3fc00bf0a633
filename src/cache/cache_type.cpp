#include "cache/cache_type.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/checked.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// TQ3_0 has a code of three bits: two select the level, and the third is stored but not read.
constexpr float kSeedLevels[8] = {-1.51f, -1.51f, -0.453f, -0.453f, 0.453f, 0.453f, 1.51f, 1.51f};
constexpr int8_t kSeedLevelsI8[8] = {-127, -127, -38, -38, 38, 38, 127, 127};

ScalarCode seed_code() {
  ScalarCode code;
  code.bits = 3;
  code.group = 32;
  code.levels = kSeedLevels;
  code.levels_i8 = kSeedLevelsI8;
  code.unit = 1.51f / 127;
  code.fit = ScaleFit::absmax;
  return code;
}

// Returns the code of a weight format with another group size.
ScalarCode code_of(std::string_view format, int group) {
  ScalarCode code = get_format(format).code[0];
  code.group = group;
  return code;
}

CacheType coded(std::string_view name, const ScalarCode& code, int block, double bound,
                std::string_view note) {
  CacheType type;
  type.name = name;
  type.coded = true;
  type.code = code;
  type.rotation_block = block;
  type.bound = bound;
  type.note = note;
  return type;
}

std::vector<CacheType> make_types() {
  CacheType f16, q8 = coded("q8_0", code_of("q8_0", 32), 0, 5e-5, "groups of 32, absmax");
  f16.name = "f16";
  f16.note = "half floats";
  q8.planes = 2;
  CacheType seed =
      coded("tq3_0:seed", seed_code(), 32, 0, "as first published: 4 levels, absmax, a bit unused");
  seed.largest_scale = true;
  return {f16,
          q8,
          coded("q4_0", code_of("q4_0", 32), kWholeHead, 7.6e-3, "rotated heads, groups of 32"),
          coded("tq3_0", code_of("tq3", 32), 32, 0.0285, "Hadamard-32, 8 levels, 14 bytes per 32"),
          seed,
          coded("kt2", code_of("tq2", 0), kWholeHead, 0.115, "rotated heads, one scale each"),
          coded("kt3", code_of("tq3", 0), kWholeHead, 0.0325, "rotated heads, one scale each"),
          coded("kt4", code_of("tq4", 0), kWholeHead, 0.0087, "rotated heads, one scale each")};
}

}  // namespace

std::span<const CacheType> all_cache_types() {
  static const std::vector<CacheType> types = make_types();
  return types;
}

const CacheType& get_cache_type(std::string_view name) {
  std::string known;
  for (const CacheType& type : all_cache_types()) {
    if (type.name == name) return type;
    known += (known.empty() ? "" : ", ") + std::string(type.name);
  }
  throw Error(ErrorCode::usage, "cache type '" + std::string(name) + "'",
              "unknown, expected one of " + known);
}

int64_t padded_head_dim(const CacheType& type, int64_t head_dim) {
  return type.coded ? round_up(head_dim, int64_t{32}) : head_dim;
}

int64_t cache_groups(const CacheType& type, int64_t head_dim) {
  return type.coded ? groups_per_row(type.code, padded_head_dim(type, head_dim)) : 0;
}

double cache_bits(const CacheType& type, int64_t head_dim) {
  if (!type.coded) return 16;
  const int64_t bits =
      padded_head_dim(type, head_dim) * type.code.bits + 16 * cache_groups(type, head_dim);
  return static_cast<double>(bits) / static_cast<double>(head_dim);
}

std::string why_not_on_gpus(const CacheTypes& types, int64_t head_dim) {
  if (types.keys->largest_scale || types.values->largest_scale)
    return "it is a baseline of the CPU";
  if (is_coded_head(head_dim)) return {};
  return fmt::format("on a GPU heads must have 64, 128 or 256 values, this model's have {}",
                     head_dim);
}

}  // namespace walsh
