// Keeps prefixes in files of a folder, so that they survive a restart. What is written first waits
// in memory for a thread that writes, so that no text waits for a disk. The folder is bounded: the
// files that were not used for the longest time are removed, whoever wrote them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/memory_visitor.h"
#include "schedule/prefix_file.h"

namespace walsh {

class PrefixStore {
 public:
  struct Options {
    std::string folder;
    uint64_t bytes = uint64_t{8} << 30;  // The bound of all files, and that of those with names.
    // Only files of this digest are read: it stands for all that what sessions save depends on
    // (model/fingerprint.h).
    Sha256 model{};
    // Takes sentences about what users should know. Any thread may call it, one at a time.
    std::function<void(const std::string&)> note = [](const std::string&) {};
  };
  // Names a text and its owner.
  struct Key {
    std::span<const int32_t> tokens;
    const std::string& owner;
  };
  struct Found {
    std::string path;
    std::vector<int32_t> tokens;
  };
  // These count since the start.
  struct Counts {
    uint64_t written = 0, read = 0, removed = 0, damaged = 0, failed = 0;
    uint64_t files = 0, bytes = 0;  // These are there now.
  };

  // Makes a folder if it is absent, for its owner only. Throws io if files cannot be kept in it,
  // and usage if it is none.
  static void make_folder(const std::string& path);

  // Makes the folder, and looks at its files. Throws what make_folder throws.
  explicit PrefixStore(Options options);
  // Waits for what is being written.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // Returns the owner's file whose text has the longest common prefix with a text, if that is of
  // `least` tokens.
  std::optional<Found> find(const Key& key, int64_t least) const;
  // Returns whether a file begins with this text.
  bool has(const Key& key) const;
  // Calls `take` with what is read from a file. If that fails because of the file, the file is
  // removed, with a note, and the result is false. Other errors are thrown on.
  bool read(const Found& found, FunctionRef<void(PrefixReader&)> take);
  // Returns whether write() would not wait.
  bool accepts() const;
  // Has a text written with what was saved of it; waits while others are to be written. Nobody is
  // told of errors but by one note.
  void write(const Key& key, std::vector<std::byte> saved);
  // Waits until everything is written.
  void finish();

  // These write and read a file with a name that the owner has chosen; owners do not see the names
  // of others. Such files are not found, and stay until they are removed by hand. They throw usage
  // for a name that is none, limit if all of these files would have more than Options::bytes, io,
  // and bad_input for a file of another model, or a damaged one. write_named returns the file's
  // bytes.
  uint64_t write_named(const std::string& name, const Key& key, std::span<const std::byte> saved);
  PrefixHead read_named(const std::string& name, const std::string& owner,
                        FunctionRef<void(const PrefixHead&, PrefixReader&)> take);

  Counts counts() const;

 private:
  using Time = std::filesystem::file_time_type;
  struct Entry {
    Sha256 owner;
    std::vector<int32_t> tokens;  // It is empty if the file is of another model.
    uint64_t bytes = 0;
    Time used;
  };
  struct Job {
    PrefixHead head;
    std::vector<std::byte> saved;
  };

  void scan();
  void look_at(const std::filesystem::path& path);
  std::string path_of(const PrefixHead& head) const;
  void run();
  void write_job(const Job& job);
  void make_room(uint64_t bytes, const std::string& kept);
  void remove(const std::string& path);
  void remove_beginnings(const PrefixHead& head, const std::string& path);
  void note_once(const std::string& kind, const std::string& text);
  std::string named_path(const std::string& name, const Sha256& owner) const;
  void check_room(const std::string& path, uint64_t bytes) const;

  const Options options_;
  mutable std::mutex mutex_;  // It guards what follows.
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;  // The keys are paths.
  uint64_t bytes_ = 0;                    // It counts those of all files.
  std::deque<Job> jobs_;                  // The first one is being written.
  Counts counts_;
  std::set<std::string> noted_;
  bool stopping_ = false;
  std::thread writer_;
};

}  // namespace walsh
