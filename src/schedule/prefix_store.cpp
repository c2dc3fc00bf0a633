#include "schedule/prefix_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/common_prefix.h"
#include "base/stop.h"
#include "io/atomic_file.h"
#include "io/descriptor.h"
#include "io/system_error.h"
#include "io/temporary.h"
#include "schedule/failure.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".walsh-prefix";
constexpr const char* kNamed = "slots";  // This folder has the files with names.
constexpr size_t kMostJobs = 2;  // Memory holds this many, with the one that is being written.
constexpr mode_t kFolder = 0700;

// Holds an open file.
class Source {
 public:
  explicit Source(const std::string& path)
      : path_(path), fd_(open_descriptor(path, O_RDONLY | O_NONBLOCK)) {
    if (fd_.get() < 0) throw_system_error(path, "open", errno);
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) throw_system_error(path, "look at", errno);
    if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::bad_input, path, "is no regular file");
    size_ = static_cast<uint64_t>(info.st_size);
  }

  uint64_t size() const { return size_; }
  void operator()(uint64_t offset, std::span<std::byte> to) {
    while (!to.empty()) {
      const ssize_t got = ::pread(fd_.get(), to.data(), to.size(), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw_system_error(path_, "read", errno);
      if (got == 0) throw Error(ErrorCode::bad_input, path_, "is cut off");
      to = to.subspan(static_cast<size_t>(got));
      offset += static_cast<uint64_t>(got);
    }
  }

 private:
  std::string path_;
  Descriptor fd_;
  uint64_t size_ = 0;
};

}  // namespace

void PrefixStore::make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), kFolder) != 0 && errno != EEXIST)
    throw_system_error(path, "create", errno);
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) throw_system_error(path, "look at", errno);
  if (!S_ISDIR(info.st_mode)) throw Error(ErrorCode::usage, path, "is no folder");
  check_output((fs::path(path) / (std::string("new") + kSuffix)).string(), {});
}

PrefixStore::PrefixStore(Options options) : options_(std::move(options)) {
  make_folder(options_.folder);
  scan();
  writer_ = std::thread([this] { run(); });
}

PrefixStore::~PrefixStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
}

void PrefixStore::scan() {
  std::error_code error;
  std::vector<fs::path> paths;
  for (fs::directory_iterator it(options_.folder, error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    if (path.extension() == kSuffix) paths.push_back(path);
    // A process that was killed has left this.
    if (path.extension() == kTemporarySuffix && path.stem().extension().string().size() > 1)
      detail::remove_leftovers((path.parent_path() / path.stem().stem()).string());
  }
  if (error) throw_system_error(options_.folder, "list", error.value());
  for (const fs::path& path : paths)
    look_at(path);
  size_t others = 0;
  for (const auto& [path, entry] : entries_)
    others += entry.tokens.empty() ? 1 : 0;
  if (others > 0)
    note_once("others", fmt::format("{}: prefixes of another model, or of other settings of its "
                                    "cache, are not used: {}",
                                    options_.folder, others));
}

// Enters a file. One that is damaged is removed; one that cannot be read is left alone.
void PrefixStore::look_at(const fs::path& path) {
  const auto failure = failure_of([&] {
    Source source(path.string());
    PrefixHead head = read_prefix_head(source.size(), source);
    Entry entry{head.owner, {}, source.size(), fs::last_write_time(path)};
    if (head.model == options_.model) entry.tokens = std::move(head.tokens);
    bytes_ += entry.bytes;
    entries_.emplace(path.string(), std::move(entry));
  });
  if (!failure || failure->code() != ErrorCode::bad_input) return;
  ++counts_.damaged;
  std::error_code error;
  fs::remove(path, error);
  note_once("damaged", fmt::format("{}: {}: it is removed, and its text will be read anew",
                                   path.string(), failure->reason()));
}

void PrefixStore::note_once(const std::string& kind, const std::string& text) {
  if (noted_.insert(kind).second) options_.note(text);
}

std::optional<PrefixStore::Found> PrefixStore::find(const Key& key, int64_t least) const {
  const Sha256 owner = sha256(key.owner);
  const std::lock_guard lock(mutex_);
  std::optional<Found> found;
  for (const auto& [path, entry] : entries_) {
    if (entry.owner != owner) continue;
    const int64_t common = common_prefix(key.tokens, entry.tokens);
    if (common < least) continue;
    least = common + 1;
    found = Found{path, entry.tokens};
  }
  return found;
}

bool PrefixStore::has(const Key& key) const {
  const auto whole = static_cast<int64_t>(key.tokens.size());
  return find(key, whole).has_value();
}

bool PrefixStore::read(const Found& found, FunctionRef<void(PrefixReader&)> take) {
  const StopScope whole(kNotStopped);
  try {
    Source source(found.path);
    const PrefixHead head = read_prefix_head(source.size(), source);
    if (head.model != options_.model || head.tokens != found.tokens)
      throw Error(ErrorCode::bad_input, found.path, "was replaced");
    PrefixReader reader(head, source);
    take(reader);
  } catch (const Error& e) {
    const std::lock_guard lock(mutex_);
    if (e.code() == ErrorCode::bad_input) {
      ++counts_.damaged;
      note_once("damaged", fmt::format("{}: {}: it is removed, and its text will be read anew",
                                       found.path, e.reason()));
      remove(found.path);
      return false;
    }
    if (e.code() != ErrorCode::io) throw;
    // Another process has removed it, or the disk has failed.
    const auto entry = entries_.find(found.path);
    if (entry == entries_.end()) return false;
    bytes_ -= entry->second.bytes;
    entries_.erase(entry);
    return false;
  }
  const std::lock_guard lock(mutex_);
  ++counts_.read;
  const auto entry = entries_.find(found.path);
  if (entry == entries_.end()) return true;
  entry->second.used = Time::clock::now();
  std::error_code error;
  fs::last_write_time(found.path, entry->second.used, error);
  return true;
}

bool PrefixStore::accepts() const {
  const std::lock_guard lock(mutex_);
  return jobs_.size() < kMostJobs;
}

void PrefixStore::write(const Key& key, std::vector<std::byte> saved) {
  Job job;
  job.head.model = options_.model;
  job.head.owner = sha256(key.owner);
  job.head.tokens.assign(key.tokens.begin(), key.tokens.end());
  job.head.saved_bytes = saved.size();
  job.saved = std::move(saved);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() < kMostJobs; });
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void PrefixStore::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty(); });
}

void PrefixStore::run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job& job = jobs_.front();  // Others are added after it.
    lock.unlock();
    const auto failure = failure_of([&] { write_job(job); });
    lock.lock();
    if (failure) {
      ++counts_.failed;
      note_once("write", fmt::format("prefixes cannot be kept: {}", failure->what()));
    }
    jobs_.pop_front();
    changed_.notify_all();
  }
}

std::string PrefixStore::path_of(const PrefixHead& head) const {
  std::string text = hex(head.model) + hex(head.owner);
  text.append(reinterpret_cast<const char*>(head.tokens.data()),
              head.tokens.size() * sizeof(int32_t));
  return (fs::path(options_.folder) / (hex(sha256(text)).substr(0, 32) + kSuffix)).string();
}

void PrefixStore::write_job(const Job& job) {
  const std::string path = path_of(job.head);
  const uint64_t bytes = job.head.file_bytes();
  if (bytes > options_.bytes) {
    const std::lock_guard lock(mutex_);
    return note_once("large", fmt::format("{}: a prefix of {} tokens needs {} MiB, which is more "
                                          "than all files may have, and is not kept",
                                          options_.folder, job.head.tokens.size(), bytes >> 20));
  }
  {
    const std::lock_guard lock(mutex_);
    make_room(bytes, path);
  }
  write_prefix(path, job.head, job.saved);
  const std::lock_guard lock(mutex_);
  if (const auto replaced = entries_.find(path); replaced != entries_.end())
    bytes_ -= replaced->second.bytes;
  entries_[path] = {job.head.owner, job.head.tokens, bytes, Time::clock::now()};
  bytes_ += bytes;
  ++counts_.written;
  remove_beginnings(job.head, path);
}

// Removes the files that were not used for the longest time until there is room for `bytes`.
void PrefixStore::make_room(uint64_t bytes, const std::string& kept) {
  while (bytes_ + bytes > options_.bytes) {
    const auto oldest =
        std::min_element(entries_.begin(), entries_.end(), [&](const auto& a, const auto& b) {
          if ((a.first == kept) != (b.first == kept)) return b.first == kept;
          return a.second.used < b.second.used;
        });
    if (oldest == entries_.end() || oldest->first == kept) return;
    ++counts_.removed;
    remove(std::string(oldest->first));
  }
}

void PrefixStore::remove(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  const auto entry = entries_.find(path);
  if (entry == entries_.end()) return;
  bytes_ -= entry->second.bytes;
  entries_.erase(entry);
}

// Removes the owner's files whose texts are beginnings of this one, which is at `path`.
void PrefixStore::remove_beginnings(const PrefixHead& head, const std::string& path) {
  std::vector<std::string> useless;
  for (const auto& [other, entry] : entries_) {
    if (other == path || entry.owner != head.owner || entry.tokens.empty()) continue;
    if (common_prefix(entry.tokens, head.tokens) == std::ssize(entry.tokens))
      useless.push_back(other);
  }
  for (const std::string& other : useless)
    remove(other);
}

std::string PrefixStore::named_path(const std::string& name, const Sha256& owner) const {
  constexpr size_t kLongest = 200;
  const bool valid = !name.empty() && name.size() <= kLongest && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
                     });
  if (!valid)
    throw Error(ErrorCode::usage, "filename",
                "expected a name of letters, digits and . - _, which does not begin with a dot");
  return (fs::path(options_.folder) / kNamed / (hex(owner).substr(0, 16) + "-" + name)).string();
}

// Throws limit if there is no room for a named file that replaces what is at `path`.
void PrefixStore::check_room(const std::string& path, uint64_t bytes) const {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), error))
    if (entry.path() != path && entry.is_regular_file(error)) bytes += entry.file_size(error);
  if (bytes > options_.bytes)
    throw Error(ErrorCode::limit, "filename",
                fmt::format("the files with names would have {} MiB, and may have {}", bytes >> 20,
                            options_.bytes >> 20));
}

uint64_t PrefixStore::write_named(const std::string& name, const Key& key,
                                  std::span<const std::byte> saved) {
  PrefixHead head;
  head.model = options_.model;
  head.owner = sha256(key.owner);
  const std::string path = named_path(name, head.owner);
  make_folder(fs::path(path).parent_path().string());
  head.tokens.assign(key.tokens.begin(), key.tokens.end());
  head.saved_bytes = saved.size();
  check_room(path, head.file_bytes());
  const StopScope whole(kNotStopped);
  write_prefix(path, head, saved);
  return head.file_bytes();
}

PrefixHead PrefixStore::read_named(const std::string& name, const std::string& owner,
                                   FunctionRef<void(const PrefixHead&, PrefixReader&)> take) {
  const StopScope whole(kNotStopped);
  Source source(named_path(name, sha256(owner)));
  PrefixHead head = read_prefix_head(source.size(), source);
  if (head.model != options_.model)
    throw Error(ErrorCode::bad_input, name,
                "is of another model, or of other settings of its cache");
  if (head.owner != sha256(owner))
    throw Error(ErrorCode::bad_input, name, "was saved with another key");
  PrefixReader reader(head, source);
  take(head, reader);
  return head;
}

PrefixStore::Counts PrefixStore::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.files = entries_.size();
  counts.bytes = bytes_;
  return counts;
}

}  // namespace walsh
