#include "io/staged_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "io/descriptor.h"
#include "io/system_error.h"
#include "io/temporary.h"

namespace walsh {
namespace {

constexpr mode_t kNewFolder = 0777;

// Removes slashes at the end, with which the temporary folder's name would lie inside the folder.
std::string trimmed(std::string path) {
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  if (path.empty()) throw Error(ErrorCode::usage, "output", "the name of the folder is empty");
  return path;
}

[[noreturn]] void refuse_existing(const std::string& path) {
  throw Error(ErrorCode::usage, path,
              "exists already; walsh does not overwrite folders: remove it or choose another name");
}

// Returns whether the name exists. A dangling symbolic link counts as well.
bool is_taken(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT) throw_system_error(path, "create", errno);
  return false;
}

void sync_folder(const std::string& path) {
  const Descriptor fd(open_descriptor(path, O_RDONLY | O_DIRECTORY));
  if (fd.get() >= 0) ::fsync(fd.get());
}

}  // namespace

void check_new_folder(const std::string& path) {
  const StagedFolder probe(path);
}

StagedFolder::StagedFolder(const std::string& path) : path_(trimmed(path)) {
  if (is_taken(path_)) refuse_existing(path_);
  detail::remove_leftovers(path_);
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ = detail::temporary_name(path_);
    if (::mkdir(temporary_.c_str(), kNewFolder) != 0) {
      if (errno == EEXIST) continue;
      break;
    }
    claim_ = Descriptor(open_descriptor(temporary_, O_RDONLY | O_DIRECTORY));
    if (claim_.get() < 0 || detail::claim_temporary(claim_.get())) return;
  }
  throw_system_error(path_, "create", errno);
}

StagedFolder::~StagedFolder() {
  std::error_code error;
  if (!committed_) std::filesystem::remove_all(temporary_, error);
}

std::string StagedFolder::final_name(std::string text) const {
  for (size_t at = 0; (at = text.find(temporary_, at)) != std::string::npos; at += path_.size())
    text.replace(at, temporary_.size(), path_);
  return text;
}

void StagedFolder::commit() {
  sync_folder(temporary_);
  // Where the system can do it, this refuses to replace a folder that has appeared at the name
  // meanwhile; plain rename would replace an empty one.
  int status = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (status != 0 && (errno == EINVAL || errno == ENOSYS) && !is_taken(path_))
    status = std::rename(temporary_.c_str(), path_.c_str());
  if (status != 0 && (errno == EEXIST || errno == ENOTEMPTY)) refuse_existing(path_);
  if (status != 0) throw_system_error(path_, "rename the finished folder to its name", errno);
  committed_ = true;
  const auto parent = std::filesystem::path(path_).parent_path();
  sync_folder(parent.empty() ? "." : parent.string());
}

}  // namespace walsh
