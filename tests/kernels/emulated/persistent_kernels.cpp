#include "kernels/emulated/device.h"
//
#define __CUDA_ARCH__ 900
//
#include "kernels/cuda/persistent/kernel.cuh"
#include "walsh/error.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "emulated program", "no kernel");
}

}  // namespace

// These kernels are emulated: of 3 bits with experts, of 3 bits with other mixers, of both, of 2 to
// 4 bits with experts, and of 3 bits for several rows. Every other one takes as long to compile.
using Three = OneCode<ScalarDecoder<3>, 128>;
template PersistentKernel persistent_kernel<Three, true, false>();
template PersistentKernel persistent_kernel<Three, false, true>();
template PersistentKernel persistent_kernel<Three, true, true>();
template PersistentKernel persistent_kernel<NarrowCodes, true, false>();
template PersistentKernel rows_persistent_kernel<Three, 2, true>();
template PersistentKernel rows_persistent_kernel<Three, 4, true>();

#define WALSH_REFUSED(...)                            \
  template <>                                         \
  PersistentKernel persistent_kernel<__VA_ARGS__>() { \
    refuse();                                         \
  }
#define WALSH_REFUSED_WITH_MIXERS(...)    \
  WALSH_REFUSED(__VA_ARGS__, false, true) \
  WALSH_REFUSED(__VA_ARGS__, true, true)
#define WALSH_REFUSED_WITH_EXPERTS(...)    \
  WALSH_REFUSED(__VA_ARGS__, false, false) \
  WALSH_REFUSED(__VA_ARGS__, true, false)

WALSH_REFUSED(Three, false, false)
WALSH_REFUSED(NarrowCodes, false, false)
WALSH_REFUSED(TrellisCodes, false, false)
WALSH_REFUSED_WITH_MIXERS(NarrowCodes)
WALSH_REFUSED_WITH_EXPERTS(WideCodes)
WALSH_REFUSED_WITH_EXPERTS(OneCode<ScalarDecoder<2>, 128>)
WALSH_REFUSED_WITH_MIXERS(OneCode<ScalarDecoder<2>, 128>)
WALSH_REFUSED_WITH_EXPERTS(OneCode<ScalarDecoder<3>, 32>)
WALSH_REFUSED_WITH_EXPERTS(OneCode<ScalarDecoder<4>, 32>)
WALSH_REFUSED_WITH_EXPERTS(OneCode<ScalarDecoder<4>, 128>)
WALSH_REFUSED_WITH_MIXERS(OneCode<ScalarDecoder<4>, 128>)
WALSH_REFUSED_WITH_EXPERTS(OneCode<ScalarDecoder<8>, 32>)
WALSH_REFUSED(OneCode<TrellisDecoder<4>, 128>, false, false)
WALSH_REFUSED(OneCode<TrellisDecoder<5>, 128>, false, false)
WALSH_REFUSED(OneCode<TrellisDecoder<6>, 128>, false, false)
WALSH_REFUSED(OneCode<TrellisDecoder<7>, 128>, false, false)
WALSH_REFUSED(OneCode<TrellisDecoder<8>, 128>, false, false)

#define WALSH_REFUSED_ROWS(...)                            \
  template <>                                              \
  PersistentKernel rows_persistent_kernel<__VA_ARGS__>() { \
    refuse();                                              \
  }

#define WALSH_REFUSED_ROWS_OF(...)          \
  WALSH_REFUSED_ROWS(__VA_ARGS__, 2, true)  \
  WALSH_REFUSED_ROWS(__VA_ARGS__, 4, true)  \
  WALSH_REFUSED_ROWS(__VA_ARGS__, 2, false) \
  WALSH_REFUSED_ROWS(__VA_ARGS__, 4, false)

WALSH_REFUSED_ROWS(Three, 2, false)
WALSH_REFUSED_ROWS(Three, 4, false)
WALSH_REFUSED_ROWS_OF(OneCode<ScalarDecoder<2>, 128>)
WALSH_REFUSED_ROWS_OF(OneCode<ScalarDecoder<4>, 128>)

#define WALSH_REFUSED_CODED_OF(...)                         \
  template <>                                               \
  PersistentKernel coded_persistent_kernel<__VA_ARGS__>() { \
    refuse();                                               \
  }
#define WALSH_REFUSED_CODED(...)          \
  WALSH_REFUSED_CODED_OF(__VA_ARGS__, 64) \
  WALSH_REFUSED_CODED_OF(__VA_ARGS__, 128)
#define WALSH_REFUSED_CODED_WITH_EXPERTS(...) \
  WALSH_REFUSED_CODED(__VA_ARGS__, false)     \
  WALSH_REFUSED_CODED(__VA_ARGS__, true)

WALSH_REFUSED_CODED_WITH_EXPERTS(NarrowCodes)
WALSH_REFUSED_CODED_WITH_EXPERTS(OneCode<ScalarDecoder<2>, 128>)
WALSH_REFUSED_CODED_WITH_EXPERTS(Three)
WALSH_REFUSED_CODED_WITH_EXPERTS(OneCode<ScalarDecoder<4>, 128>)
WALSH_REFUSED_CODED(OneCode<ScalarDecoder<3>, 32>, false)
WALSH_REFUSED_CODED(OneCode<ScalarDecoder<4>, 32>, false)
WALSH_REFUSED_CODED(OneCode<ScalarDecoder<8>, 32>, false)

}  // namespace walsh::cuda
