// Writing a folder so that it appears whole or not at all.
#pragma once

#include <string>

#include "io/descriptor.h"

namespace walsh {

// Throws usage if something is at `path` already: a folder is never written over. io if none can
// be made there. Leaves nothing behind.
void check_new_folder(const std::string& path);

// Collects files in "PATH.<pid>-<n>.walsh-tmp" beside PATH; commit() makes it PATH. Without commit
// the destructor deletes it with all that is in it; what killed processes left of the same PATH is
// deleted by the next one. Failures throw io with the system's reason,
// something that is at PATH already: usage.
class StagedFolder {
 public:
  explicit StagedFolder(const std::string& path);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  // Where a file of the folder is written until then.
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& path() const { return path_; }
  void commit();

 private:
  std::string path_, temporary_;
  Descriptor claim_;  // of the temporary folder
  bool committed_ = false;
};

}  // namespace walsh
