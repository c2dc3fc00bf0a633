#include "kernels/emulated/device.h"
//
#include "kernels/cuda/persistent/program.cpp"
#include "kernels/emulated/memory.h"

namespace walsh::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::internal, "emulated program", "has no attention");
}

}  // namespace

int turned_pairs(const RopeCall&, int) {
  refuse();
}
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

// Buffers follow each other in one piece of memory, so that those of equal things are at equal
// distances.
Buffer::Buffer(uint64_t bytes, bool zeroed) : bytes_(bytes) {
  std::byte* const at = emulated::take_memory(bytes);
  std::memset(at, zeroed ? 0 : 0xa5, bytes);
  data_ = std::shared_ptr<void>(at, [](void*) {});
}
void copy_to_device(void* device, const void* host, uint64_t bytes, Stream) {
  std::memcpy(device, host, bytes);
}
void synchronize(Stream) {}

}  // namespace walsh::cuda
