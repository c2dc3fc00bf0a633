#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "io/descriptor.h"
#include "io/fault.h"
#include "io/printable.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// Stop requests are checked between two reads of this size.
constexpr size_t kMaxRead = size_t{16} << 20;
constexpr size_t kLeastGrowth = 4096;

// O_NONBLOCK keeps the open of a FIFO from waiting for a writer; regular files ignore it.
constexpr int kOpenFlags = O_RDONLY | O_NONBLOCK;

enum class Kind : uint8_t { regular, stream };

struct OpenFile {
  Descriptor fd;
  size_t size = 0;  // a stream has 0
};

// Accepts a stream only if `widest` allows it.
OpenFile open_file(const std::string& path, Kind widest) {
  OpenFile file{Descriptor(open_descriptor(path, kOpenFlags))};
  if (file.fd.get() < 0) throw_system_error(path, "open", errno);
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) throw_system_error(path, "examine", errno);
  if (S_ISREG(info.st_mode)) {
    file.size = static_cast<size_t>(info.st_size);
  } else if (widest == Kind::regular || !(S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))) {
    throw Error(ErrorCode::bad_input, path,
                S_ISDIR(info.st_mode) ? "is a folder, expected a file" : "is not a regular file");
  }
  return file;
}

// A checkout without Git LFS has a short text in the place of each large file.
void refuse_lfs_pointer(const std::string& path, std::string_view content) {
  constexpr std::string_view kBegin = "version https://git-lfs.github.com/spec/";
  if (!content.starts_with(kBegin)) return;
  throw Error(
      ErrorCode::bad_input, path,
      "is a pointer of Git LFS, not the file that it stands for: fetch it with git lfs pull");
}

// Reads at most `bytes`; returns 0 at the end. read(2) reports the end for a FIFO that has no
// writer yet, so only waiting tells whether a writer comes.
size_t read_some(int fd, char* out, size_t bytes, const std::string& path) {
  for (;;) {
    wait_readable(fd, path);
    const ssize_t got = ::read(fd, out, std::min(bytes, kMaxRead));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR && errno != EAGAIN) throw_system_error(path, "read", errno);
  }
}

// Reads to the end: a stream has no size, a file's size may change, and /proc reports 0.
std::string read_all(const OpenFile& file, uint64_t max_bytes, const std::string& path) {
  const auto refuse_size = [&] {
    throw Error(ErrorCode::limit, path, "has more than " + std::to_string(max_bytes) + " bytes");
  };
  if (file.size > max_bytes) refuse_size();
  std::string text(file.size + 1, '\0');  // one byte more than the size lets one read see the end
  for (size_t filled = 0;;) {
    if (filled == text.size()) text.resize(filled + std::max(kLeastGrowth, filled / 2));
    const size_t got = read_some(file.fd.get(), text.data() + filled, text.size() - filled, path);
    filled += got;
    if (filled > max_bytes) refuse_size();
    if (got > 0) continue;
    text.resize(filled);
    return text;
  }
}

}  // namespace

struct MappedFile::Known {
  std::string shown;  // a signal handler prints this form of the path
  detail::FaultEntry entry;
};

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const OpenFile file = open_file(path, Kind::regular);
  size_ = file.size;
  if (size_ == 0) return;
  auto known = std::make_unique<Known>();
  known->shown = one_line(path);
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (data == MAP_FAILED) throw_system_error(path, "map into memory", errno);
  data_ = static_cast<const std::byte*>(data);
  known_ = std::move(known);
  known_->entry.enter_mapping(known_->shown.c_str(), data, size_);
  try {
    refuse_lfs_pointer(path, as_text(bytes()));
  } catch (...) {
    known_.reset();
    ::munmap(data, size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  known_.reset();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      known_(std::move(other.known_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(known_, other.known_);
  return *this;
}

void MappedFile::drop(uint64_t offset, uint64_t size) const {
  if (offset >= size_) return;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t end = size > size_ - offset ? size_ : offset + size;
  const uint64_t first = (offset + page - 1) / page * page;
  const uint64_t last = end / page * page;
  if (first >= last) return;
  // This is advice only: nothing depends on its success.
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  std::string text = read_all(open_file(path, Kind::regular), max_bytes, path);
  refuse_lfs_pointer(path, text);
  return text;
}

std::string read_text_input(const std::string& path, uint64_t max_bytes) {
  return read_all(open_file(path, Kind::stream), max_bytes, path);
}

}  // namespace walsh
