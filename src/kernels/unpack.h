// Converts panels back to the codes that files store.
#pragma once

#include <cstddef>
#include <span>

#include "formats/tensor.h"
#include "kernels/ops.h"

namespace walsh {

// The codes of pass `pass` of a tensor of `format`, from which pack_panels made `w`; `codes` has
// their size (pass_fields).
void unpack_codes(const PanelMatrix& w, std::span<std::byte> codes);

}  // namespace walsh
