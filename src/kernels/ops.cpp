#include "kernels/ops.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/checked.h"
#include "kernels/isa_tables.h"
#include "kernels/simd/attention.h"
#include "walsh/error.h"

namespace walsh {

namespace {

constexpr Ops kRefOps = {ref::matmul_i8, ref::matmul_f32,  ref::matmul_lookup, ref::matmul_dense,
                         ref::rms_norm,  ref::silu_mul,    ref::gelu_mul,      ref::sigmoid_mul,
                         ref::soft_cap,  ref::quantize_i8, ref::rope,          ref::to_f16,
                         ref::from_f16,  ref::attention,   ref::weigh,         ref::scale_weights,
                         ref::delta_rule};
Ops avx2_ops() {
  Ops ops = kRefOps;
  avx2::set_lane_ops(ops);
  ops.matmul_i8 = avx2::matmul_i8;
  ops.matmul_f32 = avx2::matmul_f32;
  ops.matmul_lookup = avx2::matmul_lookup;
  return ops;
}

Ops avx512_ops() {
  Ops ops = avx2_ops();
  avx512::set_lane_ops(ops);
  ops.matmul_i8 = avx512::matmul_i8;
  ops.matmul_f32 = avx512::matmul_f32;
  return ops;
}

Ops avx512vbmi_ops() {
  Ops ops = avx512_ops();
  ops.matmul_i8 = avx512vbmi::matmul_i8;
  ops.matmul_lookup = avx512vbmi::matmul_lookup;
  return ops;
}

Ops amx_ops() {
  Ops ops = avx512vbmi_ops();
  ops.matmul_i8 = amx::matmul_i8;
  return ops;
}

}  // namespace

int64_t delta_rule_scratch(const DeltaShape& shape) {
  // The scratch has room for products of keys and queries with the state and with the chunk's keys,
  // for coefficients, and for weighted keys.
  return 2 * kDeltaChunk * (shape.value_dim + kDeltaChunk) + kDeltaChunk +
         shape.key_dim * kDeltaChunk;
}

const Ops& ops(Isa isa) {
  if (!isa_supported(isa)) {
    throw Error(ErrorCode::usage, "instruction set",
                "this machine cannot run " + std::string(isa_name(isa)));
  }
  // Functions of an instruction set may run only where it is supported, even those that set a
  // table.
  switch (isa) {
    case Isa::ref:
      return kRefOps;
    case Isa::avx2: {
      static const Ops table = avx2_ops();
      return table;
    }
    case Isa::avx512: {
      static const Ops table = avx512_ops();
      return table;
    }
    case Isa::avx512vbmi: {
      static const Ops table = avx512vbmi_ops();
      return table;
    }
    case Isa::amx: {
      static const Ops table = amx_ops();
      return table;
    }
  }
  return kRefOps;
}

ActivationsI8::ActivationsI8(int64_t max_m, int64_t columns, int group_size, int plane_count,
                             int64_t row_stride)
    : cols(columns),
      stride(row_stride ? row_stride : columns),
      group(group_size),
      planes(plane_count) {
  const auto vectors =
      checked_mul(static_cast<uint64_t>(max_m), static_cast<uint64_t>(planes), "activations");
  const auto of_vectors = [&](int64_t each) {
    return checked_mul(vectors, static_cast<uint64_t>(each), "activations");
  };
  q = AlignedArray<int8_t>(of_vectors(stride));
  scales = AlignedArray<float>(of_vectors(groups()));
  sums = AlignedArray<int32_t>(of_vectors(cols / detail::kUnitColumns));
}

// Returns a size that suits the blocks of the vector versions, and one weight per position for ref.
int64_t attention_scratch(int64_t m, int64_t end_position, int head_dim) {
  (void)m;  // Queries are taken in blocks of a fixed size.
  return std::max(simd::AttentionBlocks::floats(head_dim), (end_position + 15) / 16 * 16);
}

void prepare_input(const Ops& ops, const InputTransform& transform, const float* x,
                   const float* gain, float eps, float* row, ActivationsI8* quantized, int64_t t) {
  const auto width = static_cast<size_t>(transform.width);
  if (gain) {
    ops.rms_norm(x, gain, transform.width, eps, row);
  } else if (row != x) {
    std::memcpy(row, x, width * sizeof(float));
  }
  std::fill(row + transform.width, row + transform.cols, 0.0f);
  if (transform.rotator) transform.rotator->apply(row);
  if (quantized) ops.quantize_i8(row, *quantized, t);
}

}  // namespace walsh
