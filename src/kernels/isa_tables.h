// Declares the implementations of each instruction set. There is one namespace per folder, with
// functions of exactly the types in Ops. avx512vbmi has its own matmuls and takes everything else
// from avx512, which takes products by look-up from avx2. amx has its own matmul of many vectors
// and takes everything else from avx512vbmi.
#pragma once

#include <type_traits>

#include "kernels/ops.h"

namespace walsh {

namespace detail {

using MatmulI8 = std::remove_pointer_t<decltype(Ops::matmul_i8)>;
using MatmulF32 = std::remove_pointer_t<decltype(Ops::matmul_f32)>;
using MatmulLookup = std::remove_pointer_t<decltype(Ops::matmul_lookup)>;
using MatmulDense = std::remove_pointer_t<decltype(Ops::matmul_dense)>;
using RmsNorm = std::remove_pointer_t<decltype(Ops::rms_norm)>;
using SiluMul = std::remove_pointer_t<decltype(Ops::silu_mul)>;
using GeluMul = std::remove_pointer_t<decltype(Ops::gelu_mul)>;
using SigmoidMul = std::remove_pointer_t<decltype(Ops::sigmoid_mul)>;
using SoftCap = std::remove_pointer_t<decltype(Ops::soft_cap)>;
using QuantizeI8 = std::remove_pointer_t<decltype(Ops::quantize_i8)>;
using Rope = std::remove_pointer_t<decltype(Ops::rope)>;
using ToF16 = std::remove_pointer_t<decltype(Ops::to_f16)>;
using FromF16 = std::remove_pointer_t<decltype(Ops::from_f16)>;
using Attention = std::remove_pointer_t<decltype(Ops::attention)>;
using Weigh = std::remove_pointer_t<decltype(Ops::weigh)>;
using ScaleWeights = std::remove_pointer_t<decltype(Ops::scale_weights)>;
using DeltaRule = std::remove_pointer_t<decltype(Ops::delta_rule)>;

}  // namespace detail

namespace ref {
detail::MatmulI8 matmul_i8;
detail::MatmulF32 matmul_f32;
detail::MatmulLookup matmul_lookup;
detail::MatmulDense matmul_dense;
detail::RmsNorm rms_norm;
detail::SiluMul silu_mul;
detail::GeluMul gelu_mul;
detail::SigmoidMul sigmoid_mul;
detail::SoftCap soft_cap;
detail::QuantizeI8 quantize_i8;
detail::Rope rope;
detail::ToF16 to_f16;
detail::FromF16 from_f16;
detail::Attention attention;
detail::Weigh weigh;
detail::ScaleWeights scale_weights;
detail::DeltaRule delta_rule;
}  // namespace ref

namespace avx2 {
detail::MatmulI8 matmul_i8;
detail::MatmulF32 matmul_f32;
detail::MatmulLookup matmul_lookup;
void set_lane_ops(Ops& ops);  // It sets all others.
}  // namespace avx2

namespace avx512 {
detail::MatmulI8 matmul_i8;
// matmul_i8 calls these. They are separate units because decoders take long to compile.
detail::MatmulI8 matmul_trellis, matmul_few;
detail::MatmulF32 matmul_f32;
void set_lane_ops(Ops& ops);  // It sets all others but products by look-up.
}  // namespace avx512

namespace avx512vbmi {
detail::MatmulI8 matmul_i8;
detail::MatmulI8 matmul_trellis, matmul_few;  // matmul_i8 calls these.
detail::MatmulLookup matmul_lookup;
}  // namespace avx512vbmi

namespace amx {
detail::MatmulI8 matmul_i8;
detail::MatmulI8 matmul_trellis;  // matmul_i8 calls it.
}  // namespace amx

}  // namespace walsh
