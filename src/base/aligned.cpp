#include "base/aligned.h"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>

namespace walsh::detail {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kBlock = 4 * kHugePage;
#if defined(__has_feature)
#define WALSH_HAS_FEATURE(x) __has_feature(x)
#else
#define WALSH_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || WALSH_HAS_FEATURE(address_sanitizer)
// Small arrays are allocated on their own, so that sanitizers see overruns.
constexpr size_t kSmallestShared = kHugePage;
#else
constexpr size_t kSmallestShared = size_t{16} << 10;
#endif

// Allocates zeroed memory. The system gives large arrays as zero pages, which take memory only when
// they are written, so a cache for a long context costs nothing before it is used.
std::shared_ptr<void> allocate(size_t bytes, size_t alignment) {
  size_t larger;
  if (__builtin_add_overflow(bytes, 2 * alignment, &larger)) {
    throw Error(ErrorCode::limit, "memory", "allocation size overflows");
  }
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::calloc(larger, 1);
  if (!memory) {
    throw Error(ErrorCode::limit, "memory", "cannot allocate " + std::to_string(bytes) + " bytes");
  }
  const std::shared_ptr<void> owner(memory, std::free);
  void* aligned = std::align(alignment, rounded, memory, larger);
  // This is a hint, which may be refused.
  if (alignment == kHugePage) madvise(aligned, rounded, MADV_HUGEPAGE);
  return {owner, aligned};
}

// Returns the next piece of the current block. A block lives as long as any of its arrays.
std::shared_ptr<void> allocate_shared(size_t bytes) {
  static std::mutex mutex;
  static std::shared_ptr<void> block;
  static size_t used = kBlock;
  const std::lock_guard lock(mutex);
  const size_t rounded = (bytes + 63) / 64 * 64;
  if (kBlock - used < rounded) {
    block = allocate(kBlock, kHugePage);
    used = 0;
  }
  std::shared_ptr<void> piece(block, static_cast<char*>(block.get()) + used);
  used += rounded;
  return piece;
}

}  // namespace

std::shared_ptr<void> allocate_zeroed(size_t bytes) {
  if (bytes == 0) return nullptr;
  return bytes >= kHugePage         ? allocate(bytes, kHugePage)
         : bytes >= kSmallestShared ? allocate_shared(bytes)
                                    : allocate(bytes, 64);
}

}  // namespace walsh::detail
