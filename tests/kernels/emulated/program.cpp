#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/program.cpp"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "emulated program", "has no attention");
}

}  // namespace

namespace detail {
CacheView cache_view(const AttentionCall&) {
  refuse();
}
int head_tiles(int, int) {
  refuse();
}
int attention_splits(int64_t, int, int, int, int64_t) {
  refuse();
}
}  // namespace detail

}  // namespace walsh::cuda
