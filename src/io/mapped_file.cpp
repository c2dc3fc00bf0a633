#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// O_NONBLOCK keeps the open of a FIFO from waiting for a writer; regular files ignore it.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

size_t regular_file_size(int fd, const std::string& path) {
  if (fd < 0) throw_system_error(path, "open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw_system_error(path, "examine", errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::bad_input, path,
                S_ISDIR(info.st_mode) ? "is a folder, expected a file" : "is not a regular file");
  }
  return static_cast<size_t>(info.st_size);
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor fd(::open(path.c_str(), kOpenFlags));
  size_ = regular_file_size(fd.get(), path);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) throw_system_error(path, "map into memory", errno);
  data_ = static_cast<const std::byte*>(data);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::drop(uint64_t offset, uint64_t size) const {
  if (offset >= size_) return;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t end = size > size_ - offset ? size_ : offset + size;
  const uint64_t first = (offset + page - 1) / page * page;
  const uint64_t last = end / page * page;
  if (first >= last) return;
  // Advice only: nothing depends on its success.
  ::madvise(const_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const Descriptor fd(::open(path.c_str(), kOpenFlags));
  const size_t expected = regular_file_size(fd.get(), path);
  const auto refuse_size = [&] {
    throw Error(ErrorCode::limit, path, "has more than " + std::to_string(max_bytes) + " bytes");
  };
  if (expected > max_bytes) refuse_size();
  std::string text(expected, '\0');
  size_t filled = 0;
  // Reads on until the end of the file: the size may have changed, and /proc reports 0.
  for (;;) {
    if (filled == text.size()) text.resize(filled + 4096);
    const ssize_t got = ::read(fd.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error(path, "read", errno);
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (filled > max_bytes) refuse_size();
  }
  text.resize(filled);
  return text;
}

}  // namespace walsh
