// What a signal handler may ask when a mapped file cannot be read any more (SIGBUS): which file it
// was, and which temporary files to delete. Both functions are async-signal-safe. Entries are made
// with a few stores under a spin lock, and nobody reads a mapping or allocates while holding it, so
// the thread that faulted does not hold the lock. After another signal it may; the functions then
// give up if the lock stays taken.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

// The path of the mapped file that contains `address`, or null. The text is valid while the file is
// mapped.
const char* mapped_path(const void* address) noexcept;

// Unlinks the temporary file of every AtomicFile.
void remove_temporary_files() noexcept;

namespace detail {

// An entry of one of two lists: mappings (with an address range) and temporary files.
class FaultEntry {
 public:
  FaultEntry() = default;
  ~FaultEntry() { leave(); }
  FaultEntry(const FaultEntry&) = delete;
  FaultEntry& operator=(const FaultEntry&) = delete;

  // `path` must outlive the entry.
  void enter_mapping(const char* path, const void* begin, size_t bytes) noexcept;
  void enter_temporary(const char* path) noexcept;
  void leave() noexcept;

 private:
  friend const char* walsh::mapped_path(const void* address) noexcept;
  friend void walsh::remove_temporary_files() noexcept;
  void enter(FaultEntry*& list) noexcept;

  const char* path_ = nullptr;
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  FaultEntry** list_ = nullptr;  // the list that contains it
  FaultEntry *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace detail
}  // namespace walsh
