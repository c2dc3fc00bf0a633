// Reads whole files, large ones by a read-only memory map and small ones into a string.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace walsh {

// Maps a regular file for reading. The map may be moved, and its bytes stay at their address.
// Another process that truncates the file while it is mapped kills the reader with SIGBUS, as with
// any memory map, unless a handler ends it in order (io/fault.h).
class MappedFile {
 public:
  // Throws io if the system refuses to open or map `path`, bad_input if it is not a regular file.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Lets the system drop the pages that lie wholly inside [offset, offset + size), so that a pass
  // over a large file does not keep all of it resident. Reading them again is correct but slow.
  void drop(uint64_t offset, uint64_t size) const;

 private:
  struct Known;  // io/fault.h knows the map by this entry.

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::unique_ptr<Known> known_;
};

// Returns the content of a regular file. Throws like MappedFile, and limit if it has more than
// `max_bytes`.
std::string read_text_file(const std::string& path, uint64_t max_bytes);

// Reads a text that the user names, which may also be a pipe or a terminal (a FIFO, /dev/stdin,
// <(COMMAND) of a shell). Also throws interrupted. Files of a model are read by the functions
// above: a FIFO in its folder could block them for ever.
std::string read_text_input(const std::string& path, uint64_t max_bytes);

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace walsh
