// Tensors of an unfinished output that took long to encode, kept beside it so that a second run
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
#include "io/checksum.h"

namespace walsh {

inline constexpr const char* kResumeSuffix = ".walsh-resume";

// The file OUTPUT.walsh-resume: records one after the other, each a header with the checksum of its
// content. A record cut short by a crash, and all behind it, is dropped when the file is opened.
// One process at a time uses it; others do without. Failures of the disk throw io.
class ResumeFile {
 public:
  explicit ResumeFile(const std::string& output);
  ~ResumeFile();
  ResumeFile(const ResumeFile&) = delete;
  ResumeFile& operator=(const ResumeFile&) = delete;

  struct Record {
    double nmse = 0;
    AlignedArray<std::byte> content;  // the arrays of the tensor, one after the other
  };
  // Empty if there is none, or if its content is damaged.
  std::optional<Record> find(const Checksum& key) const;
  void add(const Checksum& key, double nmse, std::span<const std::span<const std::byte>> arrays);
  // Deletes the file: the output is complete.
  void remove();

 private:
  struct Place {
    double nmse;
    uint64_t offset, bytes;
    Checksum checksum;
  };
  void read_index();

  std::string path_;
  int fd_ = -1;
  uint64_t end_ = 0;
  std::map<std::pair<uint64_t, uint64_t>, Place> places_;
};

}  // namespace walsh
