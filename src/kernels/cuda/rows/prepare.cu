// Prepares inputs of products, for few rows (rows/prepare_row.cuh) or many (rows/prepare_many.cuh).
#include <string>
#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows/foreign_rows.h"
#include "kernels/cuda/rows/form_view.h"
#include "kernels/cuda/rows/prepare_many.cuh"
#include "kernels/cuda/rows/prepare_row.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

struct Forms {
  FormView form[kMaxForms];
};

// Loads columns from `column` on of row t of the 16-bit values at InputView::x.
template <typename Element>
__device__ void load_16bit(const InputView& in, int64_t t, int column, float (&v)[kLaneColumns]) {
  RawLane<Element> lane;
  if (in.vectors) {
    load_raw<Element>(in.x, t * in.ldx, column, in, lane);
  } else {
    const auto* row = reinterpret_cast<const uint16_t*>(in.x) + t * in.ldx;
#pragma unroll
    for (int e = 0; e < kLaneColumns; ++e)
      if (column + e < in.width)
        lane.words[e / 2] |= static_cast<uint32_t>(row[column + e]) << (e % 2 * 16);
  }
  values_of<Element>(lane, v);
}

// Prepares few rows. The grid spans k-tiles in x, inputs in y, and forms in z.
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

template <typename Element, RowSteps Steps>
__global__ void __launch_bounds__(kResidentWarps * 32)
    prepare_many_kernel(const __grid_constant__ InputView in, const __grid_constant__ FormView form,
                        const __grid_constant__ ManyRows shape) {
  allow_next_kernel();
  prepare_many<Element, Steps>(in, form, shape);
}

using ManyKernel = void (*)(const InputView, const FormView, const ManyRows);

// Returns the kernel for many rows, or null if none supports all these steps.
ManyKernel many_kernel_for(const InputView& in, DType type) {
  if (in.gain != nullptr && (in.up != nullptr || type != DType::f32)) return nullptr;
  if (type == DType::f16) return prepare_many_kernel<__half, RowSteps::none>;
  if (type == DType::bf16) return prepare_many_kernel<__nv_bfloat16, RowSteps::none>;
  return in.gain != nullptr ? prepare_many_kernel<float, RowSteps::norm>
         : in.up != nullptr ? prepare_many_kernel<float, RowSteps::gate>
                            : prepare_many_kernel<float, RowSteps::none>;
}

void launch_few(const InputView& in, DType type, const Forms& views, size_t count, int64_t m,
                Stream stream) {
  const PrepareShape blocks = prepare_shape({views.form, count});
  const int span = blocks.span;
  const LaunchShape shape{dim3(static_cast<unsigned>(blocks.blocks), static_cast<unsigned>(m),
                               static_cast<unsigned>(count)),
                          dim3(kPrepareWarps * 32)};
  const Kernel kernel = type == DType::f32   ? kernel_for<float>(span)
                        : type == DType::f16 ? kernel_for<__half>(span)
                                             : kernel_for<__nv_bfloat16>(span);
  launch("input preparation", kernel, shape, stream, in, views);
}

void launch_prepare(const InputSource& source, const InputView& in, DType type,
                    std::span<const InputForm> forms, int64_t m, Stream stream) {
  if (forms.size() > kMaxForms) {
    throw Error(ErrorCode::internal, "GPU input", std::to_string(forms.size()) + " forms at once");
  }
  Forms views;
  ManyRows shapes[kMaxForms];
  bool many = true;  // If true, each form has a launch of its own.
  const ManyKernel kernel = many_kernel_for(in, type);
  for (size_t i = 0; i < forms.size(); ++i) {
    views.form[i] = form_view(source, forms[i], m);
    shapes[i] = many_rows(in, views.form[i], m, current_device().multiprocessors);
    many &= kernel != nullptr && shapes[i].blocks > 0;
  }
  if (!many) return launch_few(in, type, views, forms.size(), m, stream);
  for (size_t i = 0; i < forms.size(); ++i) {
    const LaunchShape shape{dim3(static_cast<unsigned>(shapes[i].blocks)),
                            dim3(static_cast<unsigned>(shapes[i].warps * 32))};
    launch("input preparation", kernel, shape, stream, in, views.form[i], shapes[i]);
  }
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
  InputSource rows;  // Kernels for 16-bit rows use only its address.
  rows.x = static_cast<const float*>(source.data);
  rows.ldx = source.stride;
  rows.width = source.width;
  InputView in = input_view(rows);
  if (source.type != DType::f32) in.vectors &= source.stride % kLaneColumns == 0;
  launch_prepare(rows, in, source.type, forms, m, stream);
}

}  // namespace walsh::cuda
