// Launches the GPU encoder's kernels on data in device memory. This is plain C++.
#pragma once

#include <cstdint>

#include "base/cuda/device.h"
#include "codec/scalar/cuda/encode_args.h"

namespace walsh::cuda::encoding {

// Encodes rows [0, rows); rows * args.spans must be below 2^31. `thresholds` is the number of the
// codebook's thresholds above zero: 1, 3 or 7. absmax does not read it.
void launch_pass(GroupKind kind, int thresholds, const PassArgs& args, int64_t rows, Stream stream);
// Launches the kernel of one kind of groups.
template <GroupKind kKind>
void launch_kind(int thresholds, const PassArgs& args, int64_t rows, Stream stream);
void launch_convert(const ConvertArgs& args, int64_t rows, Stream stream);

// Adds the sum of values[count] to *total, always in the same order.
void launch_sum(const double* values, int64_t count, double* total, Stream stream);

// Computes norms[c] += sum over rows [0, rows) of source[row][c]^2, in the order of
// add_column_norms (quantize/source/balance.h): chunks of 256 rows, then the chunks. partial has
// the shape [ceil(rows / 256)][cols].
inline constexpr int64_t kNormRows = 256;
void launch_column_norms(const Source& source, int64_t rows, double* partial, double* norms,
                         Stream stream);

}  // namespace walsh::cuda::encoding
