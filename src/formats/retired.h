// Trellis codes that earlier versions of walsh wrote and that none writes any more
// (docs/formats/retired.md). They have no kernels. The reference decoder reads them, and whoever
// loads one gets its levels, which are int8 numbers, as codes of eight bits with a scale per 32
// weights.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "formats/tensor.h"

namespace walsh {

// The retired format of this name, as files have it ("tc3" is "tc3:L12"); null if there is none.
const Format* retired_format(std::string_view name);

// The format that a tensor of `format` has once it is loaded: that of eight bits for a retired
// format, `format` itself for all others.
const Format& loaded_format(const Format& format);
// The same weights in loaded_format: rounded in their scales alone, to fp16.
Tensor loaded_tensor(Tensor tensor);

// A sentence for whoever opens a file that holds retired formats of these names.
std::string about_retired(const std::string& where, const std::set<std::string_view>& names);

}  // namespace walsh
