// The way back from panels: the codes of a matrix as they are stored in files.
#pragma once

#include <cstddef>
#include <span>

#include "formats/tensor.h"
#include "kernels/ops.h"

namespace walsh {

// The codes of pass `pass` of a tensor of `format`, of which pack_panels made `w`; `codes` has
// their size (pass_fields).
void unpack_codes(const PanelMatrix& w, std::span<std::byte> codes);

}  // namespace walsh
