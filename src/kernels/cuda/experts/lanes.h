// Device code of experts also runs on the host: files that include this compile for the device
// under nvcc and for the host otherwise, so that choices, grouping and places can be tested without
// a GPU.
//
// Lanes are threads that work together. Functions here are templates over them:
//   lanes.index(), lanes.count()   the lane's number and how many there are
//   lanes.sum(x), lanes.largest(x) over all lanes, returned to all lanes; lanes.total(i) for
//                                  integers
//   lanes.least(i), lanes.most(u)  the least of integers, the largest of unsigned integers
//   lanes.rank(flag)               how many lanes before this one have the flag, and in all
//   lanes.sync()                   makes writes of every lane visible to all
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
