#include "cache/cuda/group_code.h"

#include <optional>
#include <string>

#include "codec/scalar/cuda/encode_plan.h"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse(const CacheType& type) {
  throw Error(ErrorCode::internal, "GPU cache", "no kernel encodes " + std::string(type.name));
}

uint64_t mirror(uint64_t code) {
  return code >= 8 ? code : 7 - code;
}

void mirror(encoding::Levels& levels) {
  uint64_t codes = 0;
  for (int i = 0; i < 16; ++i)
    codes |= mirror(levels.codes >> (4 * i) & 15) << (4 * i);
  levels.codes = codes;
  levels.zero_code = static_cast<uint32_t>(mirror(levels.zero_code));
}

}  // namespace

GroupCode group_code(const CacheType& type) {
  GroupCode result;
  if (!type.coded) return result;
  const ScalarCode& code = type.code;
  const bool whole = code.group == 0 || code.group == encoding::kUnit;
  if (type.largest_scale || code.has_offset || code.sub_group != 0 || !whole) refuse(type);
  result.start = code.start;
  result.absmax = code.fit == ScaleFit::absmax;
  if (result.absmax) {
    if (code.group == 0 || (code.bits != 4 && code.bits != 8)) refuse(type);
    return result;
  }
  if (code.levels == nullptr || code.bits > 4 || code.fit == ScaleFit::sigma) refuse(type);
  const std::optional<encoding::Levels> levels = encoding::levels_of(code, result.thresholds);
  if (!levels) refuse(type);
  result.levels = *levels;
  result.mirrored = code.bits == 4;
  if (result.mirrored) mirror(result.levels);
  return result;
}

}  // namespace walsh::cuda
