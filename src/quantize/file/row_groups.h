// Rows of a coded matrix that a model has as a tensor of its own, or that are stored within one of
// a larger matrix: what fused projections are.
#pragma once

#include <span>
#include <vector>

#include "arch/config.h"
#include "formats/tensor.h"

namespace walsh {

using RowGroups = TensorPart::RowGroups;

// The rows of its source that a part consists of, in its order; of a vector the elements. A part
// may be all rows of its source in another order.
std::vector<RowGroups> rows_of(const TensorPart& part);

// A matrix of `rows` rows, those in `groups`, with its arrays in memory of its own unless they are
// one piece of those of `whole`. Throws bad_input if the format's arrays cannot be cut there.
Tensor take_rows(const Tensor& whole, std::span<const RowGroups> groups, int64_t rows);

}  // namespace walsh
