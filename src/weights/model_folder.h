// Finds the models in a folder, and names them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace walsh {

// Names a model and says where it lies.
struct ModelPlace {
  std::string name, path;
  uint64_t bytes = 0;  // its files take this many bytes
};

// Returns the name of the repository, folder or file that a model is, as one_line() writes it
// (io/printable.h): servers send names, which are UTF-8 then.
std::string model_name(const std::string& path);

// Returns whether `path` is a folder that is no model itself, and so may have models.
bool is_folder_of_models(const std::string& path);

// Returns the models in a folder, by name. They are GGUF files, folders with a config.json, folders
// with GGUF files, and repositories of Hugging Face's cache, named as by model_name(). Where a file
// would have the name of a folder it keeps its extension. Throws io for a folder that cannot be
// read, usage for more than 1000 models.
std::vector<ModelPlace> models_in(const std::string& folder);

// Returns the bytes of a file, or of all files below a folder.
uint64_t bytes_of_files(const std::string& path);

}  // namespace walsh
