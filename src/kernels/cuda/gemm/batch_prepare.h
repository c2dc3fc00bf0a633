// Makes inputs of the products of a batch from the rows in front, in one launch. It applies norm or
// gate, rotates, quantizes, and writes the order of wgmma's operands (gemm/batch_launch.h).
#pragma once

#include "kernels/cuda/gemm/batch_launch.h"
#include "kernels/cuda/rows/form_view.h"

namespace walsh::cuda::detail {

// Returns whether prepare_batch() can make this form of an input.
bool can_prepare_batch(const InputView& in, const FormView& form);

// Makes what prepare() and pack_batch() make together, with the same bits, without int8 values in
// memory. `to` says where it goes; its members `q` and `x_scales` are not read.
void prepare_batch(const InputView& in, const FormView& form, const BatchPack& to, Stream stream);

}  // namespace walsh::cuda::detail
