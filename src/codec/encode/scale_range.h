// Checks whether fp16 can hold the scales that an encoded tensor needs.
#pragma once

#include "base/thread_pool.h"
#include "codec/encode/encode_tensor.h"
#include "codec/tensor.h"

namespace walsh {

// Scales and offsets are fp16, so they saturate at 65504, get coarser below 6e-5 and vanish at
// 3e-8. This throws bad_input with an empty `where` if one of `tensor` saturated, or if coarse
// scales lose a part of the tensor that matters beside its other errors (0.3 % of its squares and
// 15 % of the remaining squared error). Rows that are tiny beside the others, such as those of
// unused tokens, do not matter. For dense tensors, throws if more than 0.1 % of the squares is
// lost.
//
// `tensor` is the result of encode_tensor for `read_rows`, with these sums; its arrays are on the
// host.
void refuse_lost_scales(const Tensor& tensor, ReadRows read_rows, ThreadPool& pool,
                        double squared_error, double squared_norm);

// Returns false if the sums alone show that refuse_lost_scales would not throw. It serves tensors
// whose arrays are not on the host.
bool may_have_lost_scales(const Format& format, double squared_error, double squared_norm);

}  // namespace walsh
