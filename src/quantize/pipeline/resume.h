// Keeps tensors of an unfinished output that took long to encode beside it, so that a second run
// continues where an interrupted one stopped. A record is found by a checksum of everything that
// decides its bytes, so nothing of another recipe or checkpoint is ever taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned.h"
#include "base/note.h"
#include "io/checksum.h"

namespace walsh {

inline constexpr const char* kResumeSuffix = ".walsh-resume";

// Returns the name of the journal of `output`, which may be a folder with a slash at the end.
std::string resume_name(std::string output);

// The journal OUTPUT.walsh-resume has records one after the other, each a header and the content of
// a tensor under one checksum. A record cut short by a crash, and all after it, is dropped when
// the journal is opened. One process at a time uses it.
//
// No run depends on the journal: nothing here throws because of the disk. If a journal cannot be
// used, the run goes on without it, which is told once. Only a regular file that is empty or starts
// as a journal does is ever touched; symbolic links are not followed.
class ResumeFile {
 public:
  ResumeFile(const std::string& output, NoteFunction note);
  ~ResumeFile();
  ResumeFile(const ResumeFile&) = delete;
  ResumeFile& operator=(const ResumeFile&) = delete;

  struct Record {
    double nmse = 0;
    AlignedArray<std::byte> content;  // it has the arrays of the tensor, one after the other
  };
  // Returns the record of a key, or nothing if there is none of `bytes` bytes or if it is damaged.
  std::optional<Record> find(const Checksum& key, uint64_t bytes) const;
  void add(const Checksum& key, double nmse, std::span<const std::span<const std::byte>> arrays);
  // Deletes the file, because the output is complete.
  void remove();
  // Returns the number of records, of this run and of those before it.
  size_t records() const { return places_.size(); }
  // Returns false if the journal is not used because of an error.
  bool usable() const { return fd_ >= 0; }

 private:
  struct Place {
    double nmse;
    uint64_t offset, bytes;
    Checksum checksum;
  };
  void open();
  bool open_once();
  void read_index();
  bool is_ours(uint64_t size) const;
  bool has_the_name() const;
  void append(const Checksum& key, double nmse, std::span<const std::span<const std::byte>> arrays);
  void close();
  // Closes the journal and reports the reason.
  void give_up(const std::string& reason);

  std::string path_;
  NoteFunction note_;
  int fd_ = -1;
  bool full_ = false;  // nothing can be added any more
  uint64_t end_ = 0;
  std::map<std::pair<uint64_t, uint64_t>, Place> places_;
};

}  // namespace walsh
