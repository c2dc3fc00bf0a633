// Tells a signal handler, when a mapped file cannot be read any more (SIGBUS), which file it was,
// and deletes temporary files. The functions for handlers are async-signal-safe. Entries are made
// with a few stores under a spin lock, and nobody reads a mapping or allocates while holding it, so
// the thread that faulted does not hold the lock. After another signal it may; the functions then
// give up if the lock stays taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace walsh {

// Returns the path of the mapped file that contains `address`, or null. The text is valid while the
// file is mapped.
const char* mapped_path(const void* address) noexcept;

// Lets a process live on. Puts zeros in place of the bytes that cannot be read any more of the
// mapped file in which `address` lies, from its page to the end, and marks the file as lost.
// Returns false if that is impossible. Handlers may call it, too.
bool replace_lost_pages(const void* address) noexcept;

// Returns the path of a mapped file that is lost and whose path begins so. Handlers must not call
// it. The bytes that were read of the file since it was mapped may be zeros.
std::optional<std::string> lost_file(std::string_view beginning);

// Unlinks the temporary file of every AtomicFile.
void remove_temporary_files() noexcept;

namespace detail {

// An entry belongs to one of two lists, which are those of mappings (with an address range) and of
// temporary files.
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
  friend bool walsh::replace_lost_pages(const void* address) noexcept;
  friend std::optional<std::string> walsh::lost_file(std::string_view beginning);
  static FaultEntry* mapping_of(const void* address) noexcept;  // the caller holds the lock
  friend void walsh::remove_temporary_files() noexcept;
  void enter(FaultEntry*& list) noexcept;

  const char* path_ = nullptr;
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  bool lost_ = false;
  FaultEntry** list_ = nullptr;  // this list contains the entry
  FaultEntry *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace detail
}  // namespace walsh
