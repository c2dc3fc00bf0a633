#include "quantize/pipeline/resume.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "io/atomic_file.h"
#include "io/descriptor.h"
#include "io/system_error.h"
#include "walsh/error.h"

namespace walsh {
namespace {

constexpr uint64_t kMagic = 0x32657365'72687377;       // its bytes read "wshrese2"
constexpr uint64_t kOlderMagic = 0x31657365'72687377;  // Records after it are no longer read.
// This bounds the memory that a strange file can take.
constexpr size_t kMostRecords = size_t{1} << 17;
constexpr int kMostAttempts = 100;

struct Header {
  uint64_t magic, key_low, key_high;
  double nmse;
  uint64_t bytes;
  uint64_t sum_low, sum_high;  // it covers all of the above and the content
};
static_assert(sizeof(Header) == 56);

// Starts the checksum of a record with its header; the content follows.
void start_sum(ChecksumStream& sum, const Header& header) {
  sum.update(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, sum_low)));
}

// Reads bytes at `offset`. Returns false at the end of the file.
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

std::string resume_name(std::string output) {
  while (output.size() > 1 && output.back() == '/')
    output.pop_back();
  return output + kResumeSuffix;
}

ResumeFile::ResumeFile(const std::string& output, NoteFunction note)
    : path_(resume_name(output)), note_(std::move(note)) {
  try {
    open();
    if (usable()) read_index();
  } catch (const Error& e) {
    give_up(e.reason());
  }
}

ResumeFile::~ResumeFile() {
  if (usable() && places_.empty() && has_the_name()) ::unlink(path_.c_str());
  close();
}

void ResumeFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void ResumeFile::give_up(const std::string& reason) {
  close();
  places_.clear();
  if (note_) note_(path_ + ": " + reason + ": if this run is interrupted, the next begins anew");
}

// Opens and locks the journal. Between the two another process may have finished and deleted the
// file. The lock is then on a file without a name, which a third process could create again.
void ResumeFile::open() {
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (open_once()) return;
    close();
  }
  give_up("comes and goes");
}

// Tries to open the journal. Returns false if that must be done again; otherwise its use is
// decided.
bool ResumeFile::open_once() {
  // With O_NONBLOCK a FIFO keeps nobody waiting.
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  fd_ = open_descriptor(path_, kFlags, 0666);
  if (fd_ < 0 && errno == ELOOP) {
    give_up("is a symbolic link and left as it is");
    return true;
  }
  if (fd_ < 0) throw_system_error(path_, "open", errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw_system_error(path_, "read", errno);
  if (!S_ISREG(info.st_mode)) {
    give_up("is no regular file and left as it is");
    return true;
  }
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw_system_error(path_, "lock", errno);
    give_up("is in use by another process");
    return true;
  }
  return has_the_name();
}

bool ResumeFile::has_the_name() const {
  struct stat opened {
  }, named{};
  return ::fstat(fd_, &opened) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

bool ResumeFile::is_ours(uint64_t size) const {
  uint64_t magic = 0;
  const size_t length = std::min<uint64_t>(size, sizeof(magic));
  const auto bytes = std::as_writable_bytes(std::span(&magic, 1)).first(length);
  return read_at(fd_, 0, bytes, path_) && (std::memcmp(&magic, &kMagic, length) == 0 ||
                                           std::memcmp(&magic, &kOlderMagic, length) == 0);
}

void ResumeFile::read_index() {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) throw_system_error(path_, "read", errno);
  const auto size = static_cast<uint64_t>(info.st_size);
  if (!is_ours(size)) {
    give_up("is no journal of walsh and left as it is");
    return;
  }
  Header header;
  while (size - end_ >= sizeof(header) && places_.size() < kMostRecords) {
    if (!read_at(fd_, end_, std::as_writable_bytes(std::span(&header, 1)), path_)) break;
    if (header.magic != kMagic || header.bytes > size - end_ - sizeof(header)) break;
    places_[{header.key_low, header.key_high}] = {
        header.nmse, end_ + sizeof(header), header.bytes, {header.sum_low, header.sum_high}};
    end_ += sizeof(header) + header.bytes;
  }
  if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) throw_system_error(path_, "resize", errno);
}

std::optional<ResumeFile::Record> ResumeFile::find(const Checksum& key, uint64_t bytes) const {
  const auto found = places_.find({key.low, key.high});
  if (found == places_.end() || found->second.bytes != bytes) return std::nullopt;
  const Place& place = found->second;
  Record record{place.nmse, AlignedArray<std::byte>(bytes)};
  const std::span content(record.content.data(), record.content.size());
  try {
    if (!read_at(fd_, place.offset, content, path_)) return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // the tensor is encoded anew
  }
  ChecksumStream sum;
  start_sum(sum, {kMagic, key.low, key.high, place.nmse, bytes, 0, 0});
  sum.update(content);
  if (sum.digest() != place.checksum || !std::isfinite(place.nmse)) return std::nullopt;
  return record;
}

void ResumeFile::add(const Checksum& key, double nmse,
                     std::span<const std::span<const std::byte>> arrays) {
  if (!usable() || full_) return;
  if (!has_the_name()) {
    give_up("was deleted");
    return;
  }
  try {
    append(key, nmse, arrays);
  } catch (const Error& e) {
    // The records so far stay good; the beginning of a record after them is cut off now, or when
    // the journal is opened.
    full_ = true;
    [[maybe_unused]] const int cut = ::ftruncate(fd_, static_cast<off_t>(end_));
    if (note_) {
      note_(path_ + ": " + e.reason() +
            ": if this run is interrupted, the next encodes what comes from here on again");
    }
  }
}

void ResumeFile::append(const Checksum& key, double nmse,
                        std::span<const std::span<const std::byte>> arrays) {
  Header header = {kMagic, key.low, key.high, nmse, 0, 0, 0};
  for (const auto& array : arrays)
    header.bytes += array.size();
  ChecksumStream sum;
  start_sum(sum, header);
  for (const auto& array : arrays)
    sum.update(array);
  const Checksum whole = sum.digest();
  header.sum_low = whole.low;
  header.sum_high = whole.high;
  const uint64_t begin = end_ + sizeof(header);
  detail::write_fully(fd_, end_, std::as_bytes(std::span(&header, 1)), path_);
  uint64_t at = begin;
  for (const auto& array : arrays) {
    detail::write_fully(fd_, at, array, path_);
    at += array.size();
  }
  places_[{key.low, key.high}] = {nmse, begin, header.bytes, whole};
  end_ = at;
}

void ResumeFile::remove() {
  if (!usable()) return;
  places_.clear();
  if (has_the_name() && ::unlink(path_.c_str()) != 0 && errno != ENOENT && note_) {
    note_(path_ + ": cannot be deleted and is of no use any more: " +
          std::generic_category().message(errno));
  }
  close();
}

}  // namespace walsh
