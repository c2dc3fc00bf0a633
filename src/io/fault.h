// What a signal handler may ask when a mapped file cannot be read any more (SIGBUS): which file it
// was, and which temporary files have to go. Both functions are safe to call in a handler: files
// are entered with a few stores under a spin lock, and no entry reads a mapping or allocates while
// it holds the lock, so the thread of such a fault never holds it. After another signal it may;
// then, and if the lock stays taken, the functions give up.
#pragma once

#include <cstddef>
#include <cstdint>

namespace walsh {

// The path of the mapped file that `address` lies in, null if there is none: a text of this
// process, good while the file is mapped.
const char* mapped_path(const void* address) noexcept;

// Unlinks the temporary file of every AtomicFile.
void remove_temporary_files() noexcept;

namespace detail {

// An entry of one of two lists: mappings with their bytes, temporary files without.
class FaultEntry {
 public:
  FaultEntry() = default;
  ~FaultEntry() { leave(); }
  FaultEntry(const FaultEntry&) = delete;
  FaultEntry& operator=(const FaultEntry&) = delete;

  // `path` outlives the entry.
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
  FaultEntry** list_ = nullptr;  // that it is in
  FaultEntry *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace detail
}  // namespace walsh
