// Reads trellis codes that earlier versions of walsh wrote and none writes any more
// (docs/formats/retired.md). They have no kernels; the reference decoder reads them. Their levels
// are int8 numbers, so a matrix that is loaded becomes codes of eight bits with a scale per 32
// weights.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "codec/tensor.h"

namespace walsh {

// Returns the retired format that files call by this name ("tc3" is "tc3:L12"); null if there is
// none.
const Format* retired_format(std::string_view name);

// Returns the format that a tensor of `format` has once it is loaded: eight bits for a retired
// format, `format` itself for all others.
const Format& loaded_format(const Format& format);
// Returns the same weights in loaded_format. Only their scales are rounded, to fp16.
Tensor loaded_tensor(Tensor tensor);

// Returns a sentence for the user who opens a file with retired formats of these names.
std::string about_retired(const std::string& where, const std::set<std::string_view>& names);

}  // namespace walsh
