#include "io/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string_view>

namespace walsh::detail {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The longest name of a file on Linux has 255 bytes, and up to 32 follow, which are '.', two
// numbers of 10 digits, '-' and the suffix.
constexpr size_t kMostBytes = 255 - 32;

// Returns the beginning of `name` that its temporaries have. It is the whole name, unless that is
// too long. No character of UTF-8 is cut.
std::string_view beginning(std::string_view name) {
  if (name.size() <= kMostBytes) return name;
  size_t size = kMostBytes;
  while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xc0) == 0x80)
    --size;
  return name.substr(0, size);
}

// Returns whether `name` is "TARGET.<pid>-<n>.walsh-tmp".
bool is_temporary_of(std::string_view name, std::string_view target) {
  const std::string_view suffix = kTemporarySuffix;
  if (!name.starts_with(target) || !name.ends_with(suffix)) return false;
  if (name.size() < target.size() + 1 + suffix.size() || name[target.size()] != '.') return false;
  name.remove_prefix(target.size() + 1);
  name.remove_suffix(suffix.size());
  const size_t dash = name.find('-');
  return dash != name.npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

// Does not wait for the lock, which could take as long as the other process runs.
bool lock(int fd) {
  int status;
  do {
    status = ::flock(fd, LOCK_EX | LOCK_NB);
  } while (status != 0 && errno == EINTR);
  return status == 0;
}

// A running process holds the lock from right after the creation until the rename, and the system
// releases it when the process ends in any way.
void remove_unclaimed(const std::filesystem::path& path) {
  const Descriptor fd(open_descriptor(path.string(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) return;
  if ((!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) || !lock(fd.get())) return;
  std::error_code error;
  std::filesystem::remove_all(path, error);
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  const size_t name = path.rfind('/') + 1;  // without a folder npos + 1 gives 0
  return path.substr(0, name).append(beginning(std::string_view(path).substr(name))) + "." +
         std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1)) + kTemporarySuffix;
}

bool claim_temporary(int fd) {
  if (!lock(fd)) return errno != EWOULDBLOCK;
  struct stat info {};
  return ::fstat(fd, &info) != 0 || info.st_nlink > 0;
}

void remove_leftovers(const std::string& path) noexcept try {
  const std::filesystem::path target(path);
  const std::filesystem::path folder = target.parent_path().empty() ? "." : target.parent_path();
  const std::string whole = target.filename().string();
  const std::string_view name = beginning(whole);
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (is_temporary_of(entry->path().filename().string(), name)) remove_unclaimed(entry->path());
  }
} catch (...) {
  // There is no memory for a name: the leftovers stay until the next run.
}

}  // namespace walsh::detail
