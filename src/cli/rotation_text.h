// Formats a rotation for listings.
#pragma once

#include <fmt/format.h>

#include <string>

#include "rotate/rotation.h"

namespace walsh::cli {

inline std::string rotation_text(const Rotation& rotation) {
  if (rotation.kind == RotationKind::none) return "none";
  return fmt::format("{}-{}{} seed {}", rotation_kind_name(rotation.kind), rotation.block,
                     rotation.signs ? "" : " no signs", rotation.seed);
}

}  // namespace walsh::cli
