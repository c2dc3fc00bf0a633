#include "weights/hub_cache.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "weights/model_folder.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "models--", kBetween = "--", kMainRevision = "main";
constexpr size_t kLongestName = 200, kLongestRevision = 200;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Returns whether a part of a name can be that of a file. Then it has letters, digits, dots, dashes
// and underscores, and does not begin with a dot.
bool is_plain(std::string_view part) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_';
  };
  return !part.empty() && part.size() <= kLongestName && part.front() != '.' &&
         std::all_of(part.begin(), part.end(), plain);
}

bool is_folder(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_directory(path, unreadable);
}

// Returns the commit that a branch or tag of a downloaded repository refers to, or an empty text if
// there is none.
std::string commit_of(const fs::path& repository, std::string_view revision) {
  std::ifstream file(repository / "refs" / revision);
  std::string commit(kLongestRevision, '\0');
  file.read(commit.data(), static_cast<std::streamsize>(commit.size()));
  commit.resize(static_cast<size_t>(file.gcount()));
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == ' '))
    commit.pop_back();
  return is_plain(commit) ? commit : "";
}

// Returns the folder of a revision, or an empty path if it was not downloaded.
std::string snapshot(const fs::path& repository, std::string_view revision) {
  const fs::path all = repository / "snapshots";
  for (const std::string& commit : {commit_of(repository, revision), std::string(revision)})
    if (!commit.empty() && is_folder(all / commit)) return (all / commit).string();
  return "";
}

// Returns ORG/NAME for models--ORG--NAME, and an empty text for another name.
std::string name_of(std::string_view folder) {
  if (!folder.starts_with(kPrefix)) return "";
  folder.remove_prefix(kPrefix.size());
  const size_t between = folder.find(kBetween);
  if (between == folder.npos) return "";
  const std::string_view owner = folder.substr(0, between);
  const std::string_view model = folder.substr(between + kBetween.size());
  if (!is_plain(owner) || !is_plain(model)) return "";
  return std::string(owner) + "/" + std::string(model);
}

}  // namespace

std::string hub_folder() {
  if (const std::string folder = variable("HF_HUB_CACHE"); !folder.empty()) return folder;
  if (const std::string home = variable("HF_HOME"); !home.empty())
    return (fs::path(home) / "hub").string();
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) {
    const std::string home = variable("HOME");
    if (home.empty()) return "";
    cache = (fs::path(home) / ".cache").string();
  }
  return (fs::path(cache) / "huggingface" / "hub").string();
}

std::string found_model(const std::string& path) {
  const size_t at = path.find('@');
  const std::string_view name = std::string_view(path).substr(0, at);
  const std::string_view revision =
      at == path.npos ? kMainRevision : std::string_view(path).substr(at + 1);
  const size_t slash = name.find('/');
  if (slash == name.npos || !is_plain(name.substr(0, slash)) || !is_plain(name.substr(slash + 1)) ||
      !is_plain(revision))
    return path;
  std::error_code unreadable;
  if (fs::exists(fs::symlink_status(path, unreadable)) || hub_folder().empty()) return path;
  std::string repository(kPrefix);
  repository += name.substr(0, slash);
  repository += kBetween;
  repository += name.substr(slash + 1);
  const std::string folder = snapshot(fs::path(hub_folder()) / repository, revision);
  return folder.empty() ? path : folder;
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(hub_folder(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = name_of(entry->path().filename().string());
    if (name.empty()) continue;
    const std::string folder = snapshot(entry->path(), kMainRevision);
    if (!folder.empty()) models.push_back({name, folder, bytes_of_files(folder)});
  }
  std::sort(models.begin(), models.end(),
            [](const CachedModel& a, const CachedModel& b) { return a.name < b.name; });
  return models;
}

std::string cached_snapshot(const std::string& repository) {
  if (name_of(fs::path(repository).filename().string()).empty()) return "";
  return snapshot(repository, kMainRevision);
}

std::string cached_name(const std::string& folder) {
  const fs::path path = fs::path(folder).lexically_normal();
  const fs::path snapshots = path.parent_path();
  if (snapshots.filename() != "snapshots") return "";
  return name_of(snapshots.parent_path().filename().string());
}

}  // namespace walsh
