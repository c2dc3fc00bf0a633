// Inputs of products (rows/prepare_row.cuh).
#include <string>
#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "kernels/cuda/rows/form_view.h"
#include "kernels/cuda/rows/prepare_row.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct Forms {
  FormView form[kMaxForms];
};

// Two neighbouring 16-bit values.
template <typename Element>
__device__ float2 pair_of(uint32_t word) {
  if constexpr (std::is_same_v<Element, __half>) {
    return halves(word);
  } else {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  }
}

// Columns `column`.. of row t of 16-bit values, which InputView::x points to.
template <typename Element>
__device__ void load_16bit(const InputView& in, int64_t t, int column, float (&v)[kLaneColumns]) {
  const auto* row = reinterpret_cast<const uint16_t*>(in.x) + t * in.ldx;
  uint32_t words[kLaneColumns / 2] = {};
  if (in.vectors) {
    if (column < in.width) {
      const uint4 four = *reinterpret_cast<const uint4*>(row + column);
      words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    }
  } else {
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      if (column + e < in.width)
        words[e / 2] |= static_cast<uint32_t>(row[column + e]) << (e % 2 * 16);
  }
#pragma unroll
  for (int e = 0; e < kLaneColumns; e += 2) {
    const float2 pair = pair_of<Element>(words[e / 2]);
    v[e] = pair.x, v[e + 1] = pair.y;
  }
}

// Grid: x over the k-tiles, y over the inputs, z over the forms.
template <int Span, typename Element>
__global__ void __launch_bounds__(kPrepareWarps * 32)
    prepare_kernel(const InputView in, const Forms forms) {
  const FormView form = blockIdx.z == 0 ? forms.form[0] : forms.form[1];
  const int64_t t = blockIdx.y;
  allow_next_kernel();
  prepare_row<Span>(in, form, t, static_cast<int>(blockIdx.x),
                    [&](int column, float(&v)[kLaneColumns]) {
                      if constexpr (std::is_same_v<Element, float>) {
                        load_input(in, t, column, v);
                      } else {
                        load_16bit<Element>(in, t, column, v);
                      }
                    });
}

using Kernel = void (*)(const InputView, const Forms);

template <typename Element>
Kernel kernel_for(int span) {
  return span == 1 ? prepare_kernel<1, Element> : prepare_kernel<4, Element>;
}

void launch_prepare(const InputSource& source, const InputView& in, DType type,
                    std::span<const InputForm> forms, int64_t m, Stream stream) {
  if (forms.size() > kMaxForms) {
    throw Error(ErrorCode::internal, "GPU input", std::to_string(forms.size()) + " forms at once");
  }
  Forms views;
  for (size_t i = 0; i < forms.size(); ++i)
    views.form[i] = form_view(source, forms[i], m);
  const PrepareShape blocks = prepare_shape({views.form, forms.size()});
  const int span = blocks.span;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks.blocks), static_cast<unsigned>(m),
                               static_cast<unsigned>(forms.size())),
                          dim3(kPrepareWarps * 32)};
  const Kernel kernel = type == DType::f32   ? kernel_for<float>(span)
                        : type == DType::f16 ? kernel_for<__half>(span)
                                             : kernel_for<__nv_bfloat16>(span);
  launch("input preparation", kernel, shape, stream, in, views);
}

}  // namespace

void prepare(const InputSource& source, std::span<const InputForm> forms, int64_t m,
             Stream stream) {
  if (m == 0 || forms.empty()) return;
  launch_prepare(source, input_view(source), DType::f32, forms, m, stream);
}

void prepare(const ForeignRows& source, std::span<const InputForm> forms, int64_t m,
             Stream stream) {
  if (m == 0 || forms.empty()) return;
  InputSource rows;  // of which 16-bit kernels take the address alone
  rows.x = static_cast<const float*>(source.data);
  rows.ldx = source.stride;
  rows.width = source.width;
  InputView in = input_view(rows);
  if (source.type != DType::f32) in.vectors &= source.stride % kLaneColumns == 0;
  launch_prepare(rows, in, source.type, forms, m, stream);
}

}  // namespace walsh::cuda
