// Says which type token embedding and output head have in a compressed model if the user names
// none.
#pragma once

#include "codec/format.h"

namespace walsh {

// Returns the type of embedding and head beside layers of `type`. It has eight bits, which cost
// nothing that could be measured beside coded layers (docs/formats/README.md). Returns null if the
// layers are not coded, since everything stays as it is then.
inline const Format* default_ends(const Format& type) {
  return type.dense ? nullptr : &get_format("q8_0");
}

}  // namespace walsh
