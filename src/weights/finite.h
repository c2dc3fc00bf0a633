// Finds values that are not finite. Damaged files may have them that are without checksums.
#pragma once

#include <string>

#include "codec/weight_source.h"

namespace walsh {

// Throws bad_input naming `where` if the tensor decodes to a value that is not finite.
void check_finite(const Tensor& tensor, const std::string& where);
// Does so for all tensors of a source, and names the first such tensor.
void check_finite(WeightSource& source);

}  // namespace walsh
