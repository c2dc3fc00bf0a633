// Finds values that are not finite, which damaged files have that are without checksums.
#pragma once

#include <string>

#include "codec/weight_source.h"

namespace walsh {

// Throws bad_input naming `where` if the tensor decodes to such a value.
void check_finite(const Tensor& tensor, const std::string& where);
// Does so for all tensors of a source, and names the first one.
void check_finite(WeightSource& source);

}  // namespace walsh
