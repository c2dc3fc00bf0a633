// Decides how the GPU encoder handles a format and a shape, and computes the constants of its
// launches. The host runs it, and it needs no device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codec/scalar/cuda/encode_args.h"
#include "codec/scalar/encoder.h"
#include "codec/tensor.h"

namespace walsh::cuda::encoding {

struct PassPlan {
  GroupKind kind = GroupKind::plain;
  int thresholds = 1;          // The kernel compares with this many thresholds above zero.
  PassArgs args = {};          // It has the constants; pointers and source are set for each launch.
  std::vector<float> factors;  // They have the shape [padded]; empty: not rotated.
  uint64_t shared_bytes = 0;   // A block needs so much.
};

// Plans pass `pass` of rows of `cols` columns. Returns nothing if the GPU has no kernel for it,
// i.e. for a code that is not scalar, groups or a codebook of another kind, or a rotation by a
// dense matrix. Throws bad_input for a rotation block that is not usable.
std::optional<PassPlan> plan_pass(const Format& format, int pass, const Rotation& rotation,
                                  const EncodeOptions& options, int64_t cols);

// Returns the codebook by magnitude, or nothing if it is not symmetric. Sets `thresholds` to the
// number of thresholds above zero.
std::optional<Levels> levels_of(const ScalarCode& code, int& thresholds);
// Returns sign / sqrt(segment size) of each column of a row.
std::vector<float> rotation_factors(const Rotation& rotation, int64_t padded);

}  // namespace walsh::cuda::encoding
