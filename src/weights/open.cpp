#include "weights/open.h"

#include <filesystem>
#include <system_error>

#include "import/gguf_checkpoint.h"
#include "io/sentence_files.h"
#include "weights/checkpoint_source.h"
#include "weights/walsh_file.h"
#include "weights/walsh_folder.h"

namespace walsh {

std::unique_ptr<WeightSource> open_stored(const std::string& path) {
  if (is_walsh_folder(path)) return WalshFolder::open(path);
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable) || is_foreign_gguf(path)) {
    return std::make_unique<CheckpointSource>(CheckpointSource::open(path, GgufCodes::keep));
  }
  return WalshFile::open(path);
}

std::string embedding_json(const WeightSource& source) {
  if (const auto* file = dynamic_cast<const WalshFile*>(&source))
    return std::string(file->embedding_json());
  return embedding_of_folder(source.path());
}

ModelConfig read_config(const WeightSource& source) {
  ModelConfig config = parse_config(source.config_json(), source.path() + ": config.json");
  // The layer may be missing: transformers does not save it, and earlier files do not have it.
  for (const LayerDesc& layer : std::vector<LayerDesc>(config.ahead.layer))
    if (!source.contains(layer.matrix(layer.join.project).weight)) config.ahead = {};
  return config;
}

}  // namespace walsh
