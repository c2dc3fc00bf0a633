// What token embedding and output head become in a compressed model if nobody says it.
#pragma once

#include "formats/format.h"

namespace walsh {

// The type of embedding and head beside layers of `type`: eight bits, which cost nothing that could
// be measured beside coded layers (docs/formats/README.md). Null if the layers are not coded:
// everything stays as it is.
inline const Format* default_ends(const Format& type) {
  return type.dense ? nullptr : &get_format("q8_0");
}

}  // namespace walsh
