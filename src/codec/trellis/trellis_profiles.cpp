#include "codec/trellis/trellis_profiles.h"

#include <array>

#include "walsh/error.h"

namespace walsh {
namespace {

constexpr int kFullStateBits = 16, kFastStateBits = 14;

const TrellisProfiles& trellis_profiles() {
  static const TrellisProfiles profiles(all_formats(), std::array{kFullStateBits, kFastStateBits});
  return profiles;
}

}  // namespace

const Format& trellis_profile(const Format& format, int state_bits, bool block_scales) {
  for (const Format& base : all_formats()) {
    if (base.kind != CodeKind::trellis || !same_code(base.trellis, format.trellis)) continue;
    if (base.trellis.state_bits == state_bits && !block_scales) return base;
    const Format* profile = trellis_profiles().find(base, state_bits, block_scales);
    if (profile != nullptr) return *profile;
  }
  throw Error(ErrorCode::usage, "format",
              std::string(format.name) + " has no profile with " + std::to_string(state_bits) +
                  " state bits");
}

const Format& fast_trellis_profile(const Format& format) {
  return trellis_profile(format, kFastStateBits, format.trellis.block_scales);
}

const Format& full_trellis_profile(const Format& format) {
  return trellis_profile(format, kFullStateBits, format.trellis.block_scales);
}

const Format* find_trellis_profile(std::string_view name) {
  return trellis_profiles().find(name);
}

std::string about_trellis_profile(const Format& format, const std::string& typed) {
  const std::string quoted = "'" + typed + "'";
  if (format.trellis.state_bits == kFastStateBits)
    return quoted + " is what --effort fast makes of " + typed.substr(0, typed.find(":L"));
  if (format.trellis.block_scales)
    return quoted + ": without ':blocks', matrices that need such scales get them, and no others";
  return {};
}

}  // namespace walsh
