// Writes a folder so that it appears whole or not at all.
#pragma once

#include <string>

#include "io/descriptor.h"
#include "walsh/error.h"

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

  // Returns the path under which a file of the folder is written before commit().
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& path() const { return path_; }
  // Calls `write`, which writes files of the folder. An Error that names one of them is thrown with
  // the final name, because users do not know the temporary one.
  template <typename Write>
  void named(const Write& write) const {
    try {
      write();
    } catch (const Error& e) {
      throw Error(e.code(), final_name(e.where()), final_name(e.reason()));
    }
  }
  void commit();

 private:
  // Returns `text` with the folder's own name instead of the temporary one.
  std::string final_name(std::string text) const;

  std::string path_, temporary_;
  Descriptor claim_;  // it marks the temporary folder as used
  bool committed_ = false;
};

}  // namespace walsh
