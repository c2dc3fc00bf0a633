// What the GPU encoder does for a format and a shape: the constants of its launches. Host code that
// needs no device.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "formats/tensor.h"
#include "quantize/cuda/encode_args.h"
#include "quantize/scalar/encoder.h"

namespace walsh::cuda::encoding {

struct PassPlan {
  GroupKind kind = GroupKind::plain;
  int thresholds = 1;          // thresholds above zero that the kernel looks at
  PassArgs args = {};          // constants; pointers and source are set per launch
  std::vector<float> factors;  // of the rotation, [padded]; empty: not rotated
  uint64_t shared_bytes = 0;   // per block
};

// Pass `pass` of rows of `cols` columns. Nothing if the GPU has no kernel for it: a code that is
// not scalar, groups or a codebook of another kind, a rotation by a dense matrix. Throws bad_input
// for a rotation block that is not usable.
std::optional<PassPlan> plan_pass(const Format& format, int pass, const Rotation& rotation,
                                  const EncodeOptions& options, int64_t cols);

// The codebook by magnitude; nothing if it is not symmetric. `steps` is the number of its
// thresholds above zero.
std::optional<Levels> levels_of(const ScalarCode& code, int& thresholds);
// Of the columns of a row: sign / sqrt(size of its segment).
std::vector<float> rotation_factors(const Rotation& rotation, int64_t padded);

}  // namespace walsh::cuda::encoding
