// What kernels of experts share with their emulation on the host: whatever includes this compiles
// for the device under nvcc and for the host otherwise, so that choices, grouping and places can be
// tested without a GPU.
//
// Lanes are threads that work on one thing together. Functions here are templates over them:
//   lanes.index(), lanes.count()   which of how many
//   lanes.sum(x), lanes.largest(x) over all lanes, in all lanes; lanes.total(i) of integers
//   lanes.least(i), lanes.most(u)  the least of integers, the largest of unsigned ones
//   lanes.rank(flag)               how many lanes in front of this one have the flag, and how many
//                                  there are in all
//   lanes.sync()                   what any lane wrote is seen by all
#pragma once

#ifdef __CUDACC__
#define WALSH_EXPERT_LANE __device__ __forceinline__
#define WALSH_EXPERT_UNROLL _Pragma("unroll")
#define WALSH_EXPERT_UNROLL_8 _Pragma("unroll 8")
#else
#define WALSH_EXPERT_LANE inline
#define WALSH_EXPERT_UNROLL
#define WALSH_EXPERT_UNROLL_8
#endif

namespace walsh::cuda {

struct Rank {
  int before = 0, all = 0;
};

}  // namespace walsh::cuda
