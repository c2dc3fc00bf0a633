#include "weights/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "io/printable.h"
#include "walsh/error.h"
#include "weights/hub_cache.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostModels = 1000;

bool is_folder(const fs::path& path) {
  std::error_code unreadable;
  return fs::is_directory(path, unreadable);
}

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

// Returns whether a file is a model. Projectors of images are not, which lie beside the models that
// they belong to.
bool is_model_file(const fs::path& path) {
  std::error_code unreadable;
  return path.extension() == ".gguf" && !path.filename().string().starts_with("mmproj") &&
         fs::is_regular_file(path, unreadable);
}

// Returns the visible entries of a folder, by name.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error), end;
  if (error) throw Error(ErrorCode::io, folder.string(), "cannot be read: " + error.message());
  for (; !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.')) entries.push_back(entry->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Returns the model files of a folder, or none if it cannot be read.
std::vector<fs::path> files_of(const fs::path& folder) {
  std::vector<fs::path> files;
  try {
    files = entries_of(folder);
  } catch (const Error&) {
  }
  std::erase_if(files, [](const fs::path& path) { return !is_model_file(path); });
  return files;
}

}  // namespace

uint64_t bytes_of_files(const std::string& path) {
  uint64_t bytes = 0;
  std::error_code error;
  const auto add = [&](const fs::path& file) {
    std::error_code unreadable;
    const uint64_t size = fs::file_size(file, unreadable);
    if (!unreadable) bytes += size;
  };
  if (!is_folder(path)) {
    add(path);
    return bytes;
  }
  for (fs::recursive_directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error))
    add(entry->path());
  return bytes;
}

std::string model_name(const std::string& model) {
  if (const std::string name = cached_name(model); !name.empty()) return name;
  const fs::path path = fs::path(model).lexically_normal();
  const fs::path last = path.has_filename() ? path : path.parent_path();
  return one_line((last.extension() == ".gguf" ? last.stem() : last.filename()).string());
}

bool is_folder_of_models(const std::string& path) {
  return is_folder(path) && !is_there(fs::path(path) / "config.json");
}

std::vector<ModelPlace> models_in(const std::string& folder) {
  std::map<std::string, fs::path> found;
  std::vector<fs::path> files;
  for (const fs::path& entry : entries_of(folder)) {
    if (is_model_file(entry)) {
      files.push_back(entry);
    } else if (is_there(entry / "config.json")) {
      found.emplace(entry.filename().string(), entry);
    } else if (const std::string snapshot = cached_snapshot(entry.string()); !snapshot.empty()) {
      found.emplace(cached_name(snapshot), snapshot);
    } else if (const std::vector<fs::path> inside = files_of(entry); inside.size() == 1) {
      found.emplace(entry.filename().string(), inside.front());
    } else {
      for (const fs::path& file : inside)
        found.emplace((entry.filename() / file.stem()).string(), file);
    }
  }
  for (const fs::path& file : files)
    if (!found.emplace(file.stem().string(), file).second)
      found.emplace(file.filename().string(), file);
  if (found.size() > kMostModels)
    throw Error(ErrorCode::usage, folder, "has more than 1000 models");
  std::vector<ModelPlace> models;
  for (const auto& [name, path] : found)
    models.push_back({one_line(name), path.string(), bytes_of_files(path.string())});
  return models;
}

}  // namespace walsh
