// Writing a folder so that it appears whole or not at all.
#pragma once

#include <string>

#include "io/descriptor.h"

namespace walsh {

// Throws usage if `path` exists (a folder is never overwritten), io if it cannot be made there.
// Leaves nothing behind.
void check_new_folder(const std::string& path);

// Collects files in "PATH.<pid>-<n>.walsh-tmp" beside PATH; commit() renames that to PATH. Without
// commit the destructor deletes it with its files; leftovers of killed processes for the same PATH
// are deleted by the next run. Failures throw io with the system's reason, an existing PATH usage.
class StagedFolder {
 public:
  explicit StagedFolder(const std::string& path);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  // Path under which a file of the folder is written before commit().
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& path() const { return path_; }
  void commit();

 private:
  std::string path_, temporary_;
  Descriptor claim_;  // on the temporary folder
  bool committed_ = false;
};

}  // namespace walsh
