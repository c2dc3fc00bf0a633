// Writes a file so that it appears whole or not at all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/fault.h"
#include "io/temporary.h"

namespace walsh {

// Collects the content under "PATH.<pid>-<n>.walsh-tmp" in the same folder; commit() makes it PATH.
// Without commit the destructor deletes it, and PATH stays absent or as it was. A symbolic link is
// followed, also one to a file that does not exist yet; a file that is replaced hands its
// permissions on. All failures throw io with the system's reason, except that a PATH which exists
// and is no regular file throws usage.
class AtomicFile {
 public:
  // Creates the temporary file, and removes those that killed processes left of the same PATH.
  // `reserve` bytes are allocated at once where the file system can do that, so that a full disk
  // shows before the work and not after it.
  explicit AtomicFile(const std::string& path, uint64_t reserve = 0);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Writes all of `bytes` at `offset`; gaps read as zeros. Threads may write at the same time.
  // Throws interrupted when the caller is asked to stop (base/stop.h).
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  // Writes at the end; only one thread may do so at a time.
  void append(std::span<const std::byte> bytes);
  // Cuts or extends (with zeros) to `size` bytes.
  void resize(uint64_t size);
  // Returns the end of the furthest write.
  uint64_t size() const { return size_.load(std::memory_order_relaxed); }

  // Brings everything to the disk by fsync, renames the file, and brings the folder to the disk.
  // Writing after it is a mistake. If it throws, the temporary file is removed by the destructor;
  // nothing throws once the file has its name.
  void commit();

  const std::string& path() const { return path_; }
  const std::string& temporary_path() const { return temporary_; }

 private:
  void create();
  void reserve_space(uint64_t bytes);

  std::string path_, temporary_;
  int fd_ = -1;
  bool committed_ = false;
  std::atomic<uint64_t> size_{0};
  detail::FaultEntry entry_;  // signal handlers delete the temporary file by it
};

// Checks before long work whether `path` can be written after it. Throws as AtomicFile, and usage
// if it is one of the files `inputs` (by device and inode). Leaves nothing behind.
void check_output(const std::string& path, const std::vector<std::string>& inputs);

// Writes a small file in one step, atomically.
void write_file(const std::string& path, std::string_view text);

namespace detail {

// Calls pwrite until all bytes are out; throws io naming `path`.
void write_fully(int fd, uint64_t offset, std::span<const std::byte> bytes,
                 const std::string& path);

}  // namespace detail
}  // namespace walsh
