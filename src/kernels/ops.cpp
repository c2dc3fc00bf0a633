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
constexpr Ops kAvx2Ops = {avx2::matmul_i8,     avx2::matmul_f32,  avx2::matmul_lookup,
                          avx2::matmul_dense,  avx2::rms_norm,    avx2::silu_mul,
                          avx2::gelu_mul,      avx2::sigmoid_mul, avx2::soft_cap,
                          avx2::quantize_i8,   avx2::rope,        avx2::to_f16,
                          avx2::from_f16,      avx2::attention,   avx2::weigh,
                          avx2::scale_weights, avx2::delta_rule};
constexpr Ops kAvx512Ops = {avx512::matmul_i8,     avx512::matmul_f32,  avx2::matmul_lookup,
                            avx512::matmul_dense,  avx512::rms_norm,    avx512::silu_mul,
                            avx512::gelu_mul,      avx512::sigmoid_mul, avx512::soft_cap,
                            avx512::quantize_i8,   avx512::rope,        avx512::to_f16,
                            avx512::from_f16,      avx512::attention,   avx512::weigh,
                            avx512::scale_weights, avx512::delta_rule};

constexpr Ops with_vbmi(Ops ops) {
  ops.matmul_i8 = avx512vbmi::matmul_i8;
  ops.matmul_lookup = avx512vbmi::matmul_lookup;
  return ops;
}
constexpr Ops kAvx512VbmiOps = with_vbmi(kAvx512Ops);

constexpr Ops with_tiles(Ops ops) {
  ops.matmul_i8 = amx::matmul_i8;
  return ops;
}
constexpr Ops kAmxOps = with_tiles(kAvx512VbmiOps);

}  // namespace

int64_t delta_rule_scratch(const DeltaShape& shape) {
  // Products of keys and queries with the state and with the chunk's keys; coefficients; keys
  // weighted for the state.
  return 2 * kDeltaChunk * (shape.value_dim + kDeltaChunk) + kDeltaChunk +
         shape.key_dim * kDeltaChunk;
}

const Ops& ops(Isa isa) {
  if (!isa_supported(isa)) {
    throw Error(ErrorCode::usage, "instruction set",
                "this machine cannot run " + std::string(isa_name(isa)));
  }
  switch (isa) {
    case Isa::ref:
      return kRefOps;
    case Isa::avx2:
      return kAvx2Ops;
    case Isa::avx512:
      return kAvx512Ops;
    case Isa::avx512vbmi:
      return kAvx512VbmiOps;
    case Isa::amx:
      return kAmxOps;
  }
  return kRefOps;
}

}  // namespace walsh
