// What a signal handler may ask when a mapped file cannot be read any more (SIGBUS): which file it
// was, and which temporary files have to go. Functions for handlers are safe to call there: files
// are entered with a few stores under a spin lock, and no entry reads a mapping or allocates while
// it holds the lock, so the thread of such a fault never holds it. After another signal it may;
// then, and if the lock stays taken, the functions give up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace walsh {

// The path of the mapped file that `address` lies in, null if there is none: a text of this
// process, good while the file is mapped.
const char* mapped_path(const void* address) noexcept;

// For a process that has to live on: puts zeros in place of what cannot be read any more of the
// mapped file that `address` lies in, from its page to the end, and marks the file as lost. False
// if that is impossible. For handlers, too.
bool replace_lost_pages(const void* address) noexcept;

// A mapped file that is lost, whose path begins so; not for handlers. What was read of it since
// it was mapped may be zeros.
std::optional<std::string> lost_file(std::string_view beginning);

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
  friend bool walsh::replace_lost_pages(const void* address) noexcept;
  friend std::optional<std::string> walsh::lost_file(std::string_view beginning);
  static FaultEntry* mapping_of(const void* address) noexcept;  // the lock is held
  friend void walsh::remove_temporary_files() noexcept;
  void enter(FaultEntry*& list) noexcept;

  const char* path_ = nullptr;
  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
  bool lost_ = false;
  FaultEntry** list_ = nullptr;  // that it is in
  FaultEntry *next_ = nullptr, *previous_ = nullptr;
};

}  // namespace detail
}  // namespace walsh
