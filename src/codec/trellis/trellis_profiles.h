// A profile of a trellis format is the same code with other state bits, or with scales per row and
// column block. It differs from its row of the registry only in its name and these two fields.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "codec/format.h"

namespace walsh {

// Returns the row of a trellis code for a registry, without the fields that only some rows set.
constexpr Format trellis_row(std::string_view name, const TrellisCode& code) {
  Format format;
  format.name = name;
  format.kind = CodeKind::trellis;
  format.passes = 1;
  format.trellis = code;
  format.rotation_block = 256;
  return format;
}

// Returns whether two codes differ at most in what a profile may change.
constexpr bool same_code(const TrellisCode& a, const TrellisCode& b) {
  return a.rule == b.rule && a.step_bits == b.step_bits && a.multiplier == b.multiplier;
}

class TrellisProfiles {
 public:
  // Makes the profiles of the trellis formats among `rows`, except those rows themselves.
  TrellisProfiles(std::span<const Format> rows, std::span<const int> state_bits) {
    for (const Format& row : rows) {
      if (row.kind != CodeKind::trellis) continue;
      for (const int bits : state_bits) {
        if (bits - row.trellis.step_bits < kLeastClassBits) continue;
        for (const bool blocks : {false, true})
          add(row, bits, blocks);
      }
    }
  }

  const Format* find(std::string_view name) const {
    for (const Format& format : formats_)
      if (format.name == name) return &format;
    return nullptr;
  }
  const Format* find(const Format& row, int state_bits, bool block_scales) const {
    for (const Format& format : formats_) {
      const TrellisCode& code = format.trellis;
      if (same_code(code, row.trellis) && code.state_bits == state_bits &&
          code.block_scales == block_scales) {
        return &format;
      }
    }
    return nullptr;
  }
  const std::deque<Format>& formats() const { return formats_; }

 private:
  // A tile begins in one of at least 16 classes.
  static constexpr int kLeastClassBits = 4;

  void add(const Format& row, int state_bits, bool blocks) {
    const bool own = state_bits == row.trellis.state_bits;
    if (own && !blocks) return;
    std::string& name = names_.emplace_back(row.name);
    if (!own) name = name.substr(0, name.find(":L")) + ":L" + std::to_string(state_bits);
    if (blocks) name += ":blocks";
    Format& profile = formats_.emplace_back(row);
    profile.name = name;
    profile.trellis.state_bits = state_bits;
    profile.trellis.block_scales = blocks;
    if (state_bits < row.trellis.state_bits) profile.bound = 0;
  }

  std::deque<std::string> names_;
  std::deque<Format> formats_;
};

// Returns the profile of a trellis format with other state bits (14 or 16) and scales, for example
// "tc3:h:L14:blocks". Throws usage for other state bits.
const Format& trellis_profile(const Format& format, int state_bits, bool block_scales);
// Returns the profile for compressing while loading (--effort fast), which has 14 state bits.
const Format& fast_trellis_profile(const Format& format);
// Returns the profile with 16 state bits.
const Format& full_trellis_profile(const Format& format);
// Returns the profile with that name, null if there is none.
const Format* find_trellis_profile(std::string_view name);
// Returns what a profile is that a user named in this way; empty for formats that are no profiles.
std::string about_trellis_profile(const Format& format, const std::string& typed);

}  // namespace walsh
