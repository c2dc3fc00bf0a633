#include "io/fault.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

namespace walsh {
namespace {

// These statics have no constructors, because a handler may run before or after those of other
// files.
constinit std::atomic_flag g_taken = ATOMIC_FLAG_INIT;
constinit detail::FaultEntry* g_mappings = nullptr;
constinit detail::FaultEntry* g_temporaries = nullptr;

class SpinLock {
 public:
  SpinLock() noexcept {
    while (g_taken.test_and_set(std::memory_order_acquire)) {
    }
  }
  ~SpinLock() { g_taken.clear(std::memory_order_release); }
  SpinLock(const SpinLock&) = delete;
  SpinLock& operator=(const SpinLock&) = delete;
};

// Tries to lock for a handler: the holder is either another thread, which is soon done, or the
// interrupted one, which never is.
class TriedLock {
 public:
  TriedLock() noexcept {
    constexpr int kPatience = 1 << 24;
    for (int i = 0; i < kPatience && !holds_; ++i)
      holds_ = !g_taken.test_and_set(std::memory_order_acquire);
  }
  ~TriedLock() {
    if (holds_) g_taken.clear(std::memory_order_release);
  }
  TriedLock(const TriedLock&) = delete;
  TriedLock& operator=(const TriedLock&) = delete;
  bool holds() const noexcept { return holds_; }

 private:
  bool holds_ = false;
};

}  // namespace

namespace detail {

void FaultEntry::enter(FaultEntry*& list) noexcept {
  const SpinLock lock;
  list_ = &list;
  previous_ = nullptr;
  next_ = list;
  if (next_ != nullptr) next_->previous_ = this;
  list = this;
}

void FaultEntry::enter_mapping(const char* path, const void* begin, size_t bytes) noexcept {
  path_ = path;
  begin_ = reinterpret_cast<uintptr_t>(begin);
  bytes_ = bytes;
  enter(g_mappings);
}

void FaultEntry::enter_temporary(const char* path) noexcept {
  path_ = path;
  enter(g_temporaries);
}

void FaultEntry::leave() noexcept {
  if (list_ == nullptr) return;
  const SpinLock lock;
  if (next_ != nullptr) next_->previous_ = previous_;
  (previous_ != nullptr ? previous_->next_ : *list_) = next_;
  list_ = nullptr;
}

FaultEntry* FaultEntry::mapping_of(const void* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (FaultEntry* entry = g_mappings; entry != nullptr; entry = entry->next_) {
    if (at >= entry->begin_ && at - entry->begin_ < entry->bytes_) return entry;
  }
  return nullptr;
}

}  // namespace detail

const char* mapped_path(const void* address) noexcept {
  const TriedLock lock;
  if (!lock.holds()) return nullptr;
  const detail::FaultEntry* entry = detail::FaultEntry::mapping_of(address);
  return entry == nullptr ? nullptr : entry->path_;
}

bool replace_lost_pages(const void* address) noexcept {
  const TriedLock lock;
  if (!lock.holds()) return false;
  detail::FaultEntry* entry = detail::FaultEntry::mapping_of(address);
  if (entry == nullptr) return false;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(address) / page * page;
  const uintptr_t end = entry->begin_ + entry->bytes_;
  void* zeros = ::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  entry->lost_ = zeros != MAP_FAILED;
  return entry->lost_;
}

std::optional<std::string> lost_file(std::string_view beginning) {
  for (std::string found;;) {
    const char* path = nullptr;
    {
      // Nothing may be allocated while the lock is held: the text is copied where it fits.
      const SpinLock lock;
      for (const detail::FaultEntry* entry = g_mappings; entry != nullptr; entry = entry->next_) {
        if (entry->lost_ && std::string_view(entry->path_).starts_with(beginning))
          path = entry->path_;
      }
      if (path == nullptr) return std::nullopt;
      const std::string_view text(path);
      if (text.size() <= found.size()) {
        text.copy(found.data(), text.size());
        found.resize(text.size());
        return found;
      }
    }
    found.resize(2 * found.size() + 4096);
  }
}

void remove_temporary_files() noexcept {
  const TriedLock lock;
  if (!lock.holds()) return;
  for (const detail::FaultEntry* entry = g_temporaries; entry != nullptr; entry = entry->next_)
    ::unlink(entry->path_);
}

}  // namespace walsh
