#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/stop.h"
#include "io/descriptor.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh {
namespace {

// write(2) transfers at most 0x7ffff000 bytes at once.
constexpr size_t kMaxWrite = size_t{1} << 30;

constexpr int kMaxLinks = 40;  // the system follows as many links
constexpr mode_t kPermissions = 0777;
constexpr mode_t kNewFile = 0666;

// Returns the status of the file that `path` refers to after symbolic links, or nothing if it does
// not exist.
std::optional<struct stat> look_at(const std::string& path) {
  if (path.empty()) throw Error(ErrorCode::usage, "output", "the file name is empty");
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return info;
  if (errno != ENOENT) throw_system_error(path, "create", errno);
  return std::nullopt;
}

// Returns where a dangling symbolic link points, or `path` itself if it is no link.
std::string follow_links(std::string path) {
  std::error_code error;
  for (int links = 0; links < kMaxLinks; ++links) {
    const std::filesystem::path target = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = (std::filesystem::path(path).parent_path() / target).string();
  }
  return path;
}

// Returns the file that `path` refers to, which is the target of symbolic links.
std::string resolve(const std::string& path) {
  const auto found = look_at(path);
  if (!found) return follow_links(path);
  const struct stat& info = *found;
  if (!S_ISREG(info.st_mode)) {
    throw Error(ErrorCode::usage, path,
                S_ISDIR(info.st_mode) ? "is a folder, expected the name of a file to write"
                                      : "exists and is not a regular file");
  }
  std::error_code error;
  const auto target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

std::string folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Makes the new name survive a power failure. Errors are ignored: the file is in its place, some
// folders may not be read, and some file systems cannot sync them.
void sync_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  const Descriptor fd(open_descriptor(folder, O_RDONLY | O_DIRECTORY));
  if (fd.get() >= 0) ::fsync(fd.get());
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, uint64_t reserve) : path_(resolve(path)) {
  create();
  try {
    reserve_space(reserve);
  } catch (...) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
    throw;
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::create() {
  detail::remove_leftovers(path_);
  const auto replaced = look_at(path_);
  const mode_t mode = replaced ? replaced->st_mode & kPermissions : kNewFile;
  // A leftover of an earlier process with the same id may have this name; it is not ours to
  // overwrite.
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = detail::temporary_name(path_);
    fd_ = open_descriptor(temporary_, O_WRONLY | O_CREAT | O_EXCL, mode);
    if (fd_ >= 0 && !detail::claim_temporary(fd_)) {
      ::close(std::exchange(fd_, -1));
      continue;
    }
    if (fd_ >= 0) {
      entry_.enter_temporary(temporary_.c_str());
      // Restores the permissions that the umask removed. Some file systems have none to set.
      if (replaced) static_cast<void>(::fchmod(fd_, mode));
      return;
    }
    if (errno != EEXIST) break;
  }
  throw_system_error(path_, "create", errno);
}

void AtomicFile::reserve_space(uint64_t bytes) {
  if (bytes == 0) return;
  if (bytes > static_cast<uint64_t>(INT64_MAX)) throw_system_error(path_, "reserve space", EFBIG);
  int status;
  do {
    status = ::fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (status != 0 && errno == EINTR);
  if (status != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    throw_system_error(path_, "reserve " + std::to_string(bytes) + " bytes", errno);
  }
}

void AtomicFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  check_stop();
  detail::write_fully(fd_, offset, bytes, path_);
  const uint64_t end = offset + bytes.size();
  uint64_t seen = size_.load(std::memory_order_relaxed);
  while (seen < end && !size_.compare_exchange_weak(seen, end, std::memory_order_relaxed)) {
  }
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  write_at(size(), bytes);
}

void AtomicFile::resize(uint64_t size) {
  if (size > static_cast<uint64_t>(INT64_MAX)) throw_system_error(path_, "resize", EFBIG);
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) throw_system_error(path_, "resize", errno);
  size_.store(size, std::memory_order_relaxed);
}

void AtomicFile::commit() {
  // Cutting at the end gives back the bytes that were reserved and not used.
  resize(size());
  if (::fsync(fd_) != 0) throw_system_error(path_, "sync", errno);
  // The copy keeps the claim until the file has its name.
  const Descriptor claim(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  const int status = ::close(std::exchange(fd_, -1));
  if (status != 0) throw_system_error(path_, "close", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_system_error(path_, "rename the finished file to its name", errno);
  }
  committed_ = true;
  sync_folder(path_);
}

void check_output(const std::string& path, const std::vector<std::string>& inputs) {
  if (const auto output = look_at(path)) {
    for (const std::string& input : inputs) {
      struct stat info {};
      if (::stat(input.c_str(), &info) != 0) continue;
      if (info.st_dev != output->st_dev || info.st_ino != output->st_ino) continue;
      throw Error(ErrorCode::usage, path, "would be written over, but it is an input: " + input);
    }
  }
  const AtomicFile probe(path);
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

namespace detail {

void write_fully(int fd, uint64_t offset, std::span<const std::byte> bytes,
                 const std::string& path) {
  if (offset > static_cast<uint64_t>(INT64_MAX) - bytes.size()) {
    throw_system_error(path, "write", EFBIG);
  }
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(fd, bytes.data(), std::min(bytes.size(), kMaxWrite), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw_system_error(path, "write", errno);
    if (wrote == 0) throw_system_error(path, "write", ENOSPC);
    offset += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

}  // namespace detail
}  // namespace walsh
