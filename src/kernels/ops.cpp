#include "kernels/ops.h"

#include <string>

#include "kernels/isa_tables.h"
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
  // Space for: products of keys and queries with the state and with the chunk's keys; coefficients;
  // weighted keys.
  return 2 * kDeltaChunk * (shape.value_dim + kDeltaChunk) + kDeltaChunk +
         shape.key_dim * kDeltaChunk;
}

const Ops& ops(Isa isa) {
  if (!isa_supported(isa)) {
    throw Error(ErrorCode::usage, "instruction set",
                "this machine cannot run " + std::string(isa_name(isa)));
  }
  // Functions of an instruction set, even those that set a table, run only where it is.
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

}  // namespace walsh
