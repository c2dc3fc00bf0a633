// Finds models that Hugging Face's tools have downloaded. They lie in a cache and are known by
// their names, such as Qwen/Qwen3-0.6B. Nothing is downloaded here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// Returns the folder of the cache, which is $HF_HUB_CACHE, $HF_HOME/hub, or
// ~/.cache/huggingface/hub.
std::string hub_folder();

// Returns the folder of a model named ORG/NAME, or ORG/NAME@REVISION, if there is no file of that
// name and the model was downloaded. Returns any other path as it is.
std::string found_model(const std::string& path);

struct CachedModel {
  std::string name;    // it is ORG/NAME
  std::string folder;  // found_model() takes this revision
  uint64_t bytes = 0;  // its files take this many bytes
};

// Returns all models in the cache, by name.
std::vector<CachedModel> cached_models();

// Returns the folder of the main revision of a repository of the cache (models--ORG--NAME), and an
// empty path for any other folder.
std::string cached_snapshot(const std::string& repository);

// Returns ORG/NAME for a folder of the cache, and an empty text for any other path.
std::string cached_name(const std::string& folder);

}  // namespace walsh
