// Whether fp16 holds the scales that an encoded tensor needs.
#pragma once

#include "base/thread_pool.h"
#include "formats/tensor.h"
#include "quantize/encode/encode_tensor.h"

namespace walsh {

// Scales and offsets are fp16: they saturate at 65504, and below 6e-5 they get coarser until they
// vanish at 3e-8. Throws bad_input with an empty `where` if one of `tensor` saturated, or if coarse
// scales lose a part of the tensor that shows beside its other errors (0.3 % of its squares and 15
// % of the rest of the squared error). Rows that are tiny beside the others, as those of unused
// tokens, lose nothing that shows. Dense tensors: if more than 0.1 % of the squares is lost.
//
// `tensor` is what encode_tensor made of `read_rows` with these sums; its arrays are on the host.
void refuse_lost_scales(const Tensor& tensor, ReadRows read_rows, ThreadPool& pool,
                        double squared_error, double squared_norm);

// False if the sums alone say that refuse_lost_scales has nothing to refuse: for a tensor whose
// arrays are elsewhere.
bool may_have_lost_scales(const Format& format, double squared_error, double squared_norm);

}  // namespace walsh
