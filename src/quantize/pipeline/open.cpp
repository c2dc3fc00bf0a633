#include "quantize/pipeline/open.h"

#include <filesystem>
#include <system_error>

#include "arch/plan.h"
#include "import/gguf_checkpoint.h"
#include "io/gguf.h"
#include "io/mapped_file.h"
#include "walsh/error.h"
#include "weights/open.h"
#include "weights/walsh_file.h"
#include "weights/walsh_folder.h"

namespace walsh {

std::unique_ptr<Compressor> open_compressor(const std::string& path, const Recipe& recipe,
                                            ThreadPool& pool) {
  std::error_code unreadable;  // opening the file then says why
  if (std::filesystem::is_regular_file(path, unreadable) && !is_foreign_gguf(path)) {
    const MappedFile file(path);
    parse_gguf(file.bytes(), path);  // it throws for a file of another kind
    throw Error(ErrorCode::usage, path,
                "a file of walsh, expected a Hugging Face checkpoint folder or a GGUF file of "
                "llama.cpp: walsh quantizes from the original weights only");
  }
  if (is_walsh_folder(path)) {
    throw Error(ErrorCode::usage, path,
                "its linear layers are coded already: walsh quantizes from the original weights "
                "only");
  }
  Checkpoint checkpoint = open_checkpoint(path);
  ModelPlan plan = read_plan(checkpoint.config_json(), checkpoint.config_place());
  return std::make_unique<Compressor>(std::move(checkpoint), std::move(plan), recipe, pool);
}

std::unique_ptr<WeightSource> open_source(const std::string& path, const Recipe* recipe,
                                          ThreadPool& pool) {
  if (recipe) {
    auto compressor = open_compressor(path, *recipe, pool);
    compressor->settle_formats();
    return compressor;
  }
  return open_stored(path);
}

}  // namespace walsh
