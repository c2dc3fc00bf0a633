#include "quantize/resume.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/atomic_file.h"
#include "io/system_error.h"

namespace walsh {
namespace {

constexpr uint64_t kMagic = 0x31657365'72687377;  // "wshrese1"

struct Header {
  uint64_t magic, key_low, key_high;
  double nmse;
  uint64_t bytes, content_low, content_high;
};
static_assert(sizeof(Header) == 56);

// False at the end of the file.
bool read_at(int fd, uint64_t offset, std::span<std::byte> out, const std::string& path) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error(path, "read", errno);
    if (got == 0) return false;
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return true;
}

}  // namespace

ResumeFile::ResumeFile(const std::string& output) : path_(output + kResumeSuffix) {
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) throw_system_error(path_, "open", errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    ::close(fd_);
    fd_ = -1;  // another process writes the same output: this one neither reads nor adds
    return;
  }
  try {
    read_index();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

ResumeFile::~ResumeFile() {
  if (fd_ < 0) return;
  if (places_.empty()) ::unlink(path_.c_str());
  ::close(fd_);
}

void ResumeFile::read_index() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw_system_error(path_, "read", errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  Header header;
  while (size - end_ >= sizeof(header)) {
    if (!read_at(fd_, end_, std::as_writable_bytes(std::span(&header, 1)), path_)) break;
    if (header.magic != kMagic || header.bytes > size - end_ - sizeof(header)) break;
    places_[{header.key_low, header.key_high}] = {header.nmse,
                                                  end_ + sizeof(header),
                                                  header.bytes,
                                                  {header.content_low, header.content_high}};
    end_ += sizeof(header) + header.bytes;
  }
  if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) throw_system_error(path_, "resize", errno);
}

std::optional<ResumeFile::Record> ResumeFile::find(const Checksum& key) const {
  const auto place = places_.find({key.low, key.high});
  if (place == places_.end()) return std::nullopt;
  Record record{place->second.nmse, AlignedArray<std::byte>(place->second.bytes)};
  const std::span content(record.content.data(), record.content.size());
  if (!read_at(fd_, place->second.offset, content, path_)) return std::nullopt;
  if (checksum(content) != place->second.checksum) return std::nullopt;
  return record;
}

void ResumeFile::add(const Checksum& key, double nmse,
                     std::span<const std::span<const std::byte>> arrays) {
  if (fd_ < 0) return;
  ChecksumStream sum;
  uint64_t bytes = 0;
  for (const auto& array : arrays) {
    sum.update(array);
    bytes += array.size();
  }
  const Checksum content = sum.digest();
  const Header header = {kMagic, key.low, key.high, nmse, bytes, content.low, content.high};
  const uint64_t begin = end_ + sizeof(header);
  detail::write_fully(fd_, end_, std::as_bytes(std::span(&header, 1)), path_);
  uint64_t at = begin;
  for (const auto& array : arrays) {
    detail::write_fully(fd_, at, array, path_);
    at += array.size();
  }
  places_[{key.low, key.high}] = {nmse, begin, bytes, content};
  end_ = at;
}

void ResumeFile::remove() {
  if (fd_ < 0) return;
  places_.clear();
  if (::unlink(path_.c_str()) != 0) throw_system_error(path_, "delete", errno);
  ::close(fd_);
  fd_ = -1;
}

}  // namespace walsh
