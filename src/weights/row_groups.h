// Takes groups of rows of a coded matrix, because tensors of the model may be stored within a
// larger matrix (fused projections), or the reverse.
#pragma once

#include <span>
#include <vector>

#include "arch/config.h"
#include "codec/tensor.h"

namespace walsh {

using RowGroups = TensorPart::RowGroups;

// Returns the rows of the source that a part consists of, in the part's order. The rows of a vector
// are its elements. A part may consist of all rows of its source in another order.
std::vector<RowGroups> rows_of(const TensorPart& part);

// Returns the matrix of the `rows` rows that `groups` names. Its arrays are views of those of
// `whole` where they are contiguous there, and otherwise copies. Throws bad_input if the format's
// arrays cannot be divided there.
Tensor take_rows(const Tensor& whole, std::span<const RowGroups> groups, int64_t rows);

}  // namespace walsh
