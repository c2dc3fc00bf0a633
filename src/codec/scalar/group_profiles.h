// A profile with smaller groups is a scalar format whose scales hold for fewer weights: "tq4:g64"
// has less error than tq4 and an eighth of a bit more. Profiles differ from the rows of the
// registry in their names and in the groups of their passes.
#pragma once

#include <algorithm>
#include <deque>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "codec/format.h"

namespace walsh {

// Returns whether all passes of a format have searched scales for `group` weights, without offsets.
constexpr bool has_plain_groups(const Format& format, int group) {
  if (format.kind != CodeKind::scalar) return false;
  return std::all_of(format.code, format.code + format.passes, [&](const ScalarCode& code) {
    return code.fit == ScaleFit::search && code.group == group && !code.has_offset;
  });
}

inline constexpr int kUsualGroup = 128;
inline constexpr int kSmallerGroups[] = {64, 32};

inline std::string group_suffix(int group) {
  return ":g" + std::to_string(group);
}

// Returns whether a format is such a profile. Retired codes have small groups, too, but are none.
inline bool is_group_profile(const Format& format) {
  return std::any_of(std::begin(kSmallerGroups), std::end(kSmallerGroups), [&](int group) {
    return has_plain_groups(format, group) && format.name.ends_with(group_suffix(group));
  });
}

class GroupProfiles {
 public:
  // Makes the profiles of the formats among `rows` whose groups have the usual size.
  explicit GroupProfiles(std::span<const Format> rows) {
    for (const Format& row : rows) {
      if (!has_plain_groups(row, kUsualGroup)) continue;
      for (const int group : kSmallerGroups)
        add(row, group);
    }
  }

  const Format* find(std::string_view name) const {
    for (const Format& format : formats_)
      if (format.name == name) return &format;
    return nullptr;
  }

 private:
  void add(const Format& row, int group) {
    names_.push_back(std::string(row.name) + group_suffix(group));
    Format& profile = formats_.emplace_back(row);
    profile.name = names_.back();
    for (int pass = 0; pass < profile.passes; ++pass)
      profile.code[pass].group = group;
  }

  std::deque<std::string> names_;
  std::deque<Format> formats_;
};

}  // namespace walsh
