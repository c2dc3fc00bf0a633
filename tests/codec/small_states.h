// Gives tests trellis formats with few state bits, which are encoded in a fraction of the time.
// walsh reads them in files and no longer writes any.
#pragma once

#include <string>

#include "codec/format.h"

namespace walsh::testing_support {

// Does what get_format does, and knows "tc2:h:L8", "tc3:h:L10:blocks" and so on.
inline const Format& test_format(const std::string& name) {
  return name.find(":L") == std::string::npos ? get_format(name) : stored_format(name);
}

}  // namespace walsh::testing_support
