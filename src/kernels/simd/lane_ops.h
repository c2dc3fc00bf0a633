// Sets those operations that are one template over the width of vectors.
#pragma once

#include "kernels/simd/attention.h"
#include "kernels/simd/delta_rule.h"
#include "kernels/simd/dense.h"
#include "kernels/simd/vector_ops.h"

namespace walsh::simd {

// Sets the instances for V, the vectors of an instruction set.
template <typename V>
void set_lane_ops(Ops& ops) {
  ops.matmul_dense = matmul_dense<V>;
  ops.rms_norm = rms_norm<V>;
  ops.silu_mul = silu_mul<V>;
  ops.gelu_mul = gelu_mul<V>;
  ops.sigmoid_mul = sigmoid_mul<V>;
  ops.soft_cap = soft_cap<V>;
  ops.quantize_i8 = quantize_i8<V>;
  ops.rope = rope<V>;
  ops.to_f16 = to_f16<V>;
  ops.from_f16 = from_f16<V>;
  ops.attention = attention<V>;
  ops.weigh = weigh<V>;
  ops.scale_weights = scale_weights<V>;
  ops.delta_rule = delta_rule<V>;
}

}  // namespace walsh::simd
