// Reads the `quantization_config` of a Hugging Face folder whose linear layers walsh has coded, as
// `walsh quantize --output-format hf` and walsh.transformers write it (docs/formats/folder.md).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "codec/weight_source.h"
#include "io/json.h"

namespace walsh {

inline constexpr const char* kFolderMethod = "walsh";
inline constexpr const char* kFolderConfig = "quantization_config";
inline constexpr int kFolderVersion = 1;

// Describes a linear layer. It is named as in the model's code, and its tensors are MODULE.codes,
// MODULE.scales and so on.
struct StoredModule {
  const Format* format = nullptr;  // it has codes
  int64_t rows = 0, cols = 0;
  Rotation rotation[2] = {kNoRotation, kNoRotation};
};

struct FolderConfig {
  std::string producer;
  std::string recipe = "{}";  // it is JSON, if the folder tells it
  std::map<std::string, StoredModule> modules;
};

// Returns the module whose weight a tensor is, which is its name without ".weight". Returns an
// empty text for other names.
std::string module_of(std::string_view tensor);

// Returns whether config.json describes such a folder. Anything that is not valid JSON does not.
bool is_walsh_config(std::string_view config_json);
// Returns whether `path` is such a folder. It returns false if it cannot be read.
bool is_walsh_folder(const std::string& path);

// Reads the config of such a folder. Throws bad_input, naming `where` and the module, for a later
// version, unknown types and rotations, and impossible shapes.
FolderConfig read_folder_config(std::string_view config_json, const std::string& where);
// Returns the text without `quantization_config`.
std::string plain_config(std::string_view config_json, const std::string& where);
// Returns the `modules` of a folder.
OrderedJson modules_json(const std::map<std::string, StoredModule>& modules);

}  // namespace walsh
