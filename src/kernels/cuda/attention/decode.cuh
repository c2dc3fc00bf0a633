// Schedules decode attention of single rows over long sequences, whatever keys and values are read
// from. It is bound by reading the cache.
//
// A block takes a part of one row's positions for up to 8 query heads of one KV head. Its warps
// work independently, each with its own softmax and sums, which are combined at the end; the parts
// of a row are combined in order by the block that finishes last. Products are transposed, S^T = K
// Q^T and O^T = V^T P^T, so that positions fill the 16 rows of the tensor core operand and the few
// heads its 8 columns.
//
// A reader of keys and values says which positions a part has, and computes attention to those of
// its warp. decode.cu reads fp16 pages, and cache/cuda/attend_decode.cuh reads a coded cache.
#pragma once

#include "kernels/cuda/attention/decode_softmax.cuh"
#include "kernels/cuda/launch.h"

namespace walsh::cuda {

// Computes a part of a row. The grid spans the parts of a row in x, tiles of heads in y, and rows
// in z.
template <typename Reader, bool Capped>
__global__ void __launch_bounds__(Reader::kThreads, Reader::kBlocks)
    decode_kernel(const __grid_constant__ typename Reader::Args args) {
  WALSH_SHARED_TILES(memory);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  allow_next_kernel();
  const Reader reader(args, memory, warp, lane);
  if (static_cast<int>(blockIdx.x) >= reader.part().active) {
    wait_previous_kernel();
    return;
  }
  Running<Reader::kDim> run;
  reader.template attend<Capped>(run);
  const bool delivered = finish_part<Reader::kDim, Reader::kWarps>(
      args, reader.part(), run, reinterpret_cast<float*>(memory), warp, lane,
      [&](int head, int column, const float4& sum, float factor) {
        reader.take(head, column, sum, factor);
      });
  if (delivered) reader.finish();
}

template <typename Reader>
void launch_decode(const typename Reader::Args& args, int kv_heads, int splits, size_t shared,
                   Stream stream) {
  const LaunchShape shape{
      dim3(static_cast<unsigned>(splits), static_cast<unsigned>(kv_heads * args.tiles),
           static_cast<unsigned>(args.m)),
      dim3(Reader::kThreads), shared};
  const bool capped = args.rule.cap.power != 0;
  launch("attention", capped ? decode_kernel<Reader, true> : decode_kernel<Reader, false>, shape,
         stream, args);
}

}  // namespace walsh::cuda
