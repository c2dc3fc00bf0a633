#include "api/outputs.h"

#include <filesystem>
#include <set>

#include "import/gguf_checkpoint.h"
#include "io/atomic_file.h"
#include "io/checkpoint.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;

// Equal for two names of one file, which need not exist.
std::string place_of(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : place.string();
}

}  // namespace

void check_outputs(const std::vector<std::string>& outputs, const std::string& folder,
                   std::vector<std::string> inputs, const std::string& new_folder) {
  std::error_code unreadable;
  const bool is_gguf = is_foreign_gguf(folder);
  if (is_gguf || fs::is_directory(folder, unreadable)) {
    const Checkpoint checkpoint = is_gguf ? open_gguf_checkpoint(folder) : Checkpoint::open(folder);
    inputs.insert(inputs.end(), checkpoint.files().begin(), checkpoint.files().end());
  }
  std::set<std::string> places;
  if (!new_folder.empty()) places.insert(place_of(new_folder));
  for (const std::string& output : outputs) {
    if (output.empty()) continue;
    check_output(output, inputs);
    if (!places.insert(place_of(output)).second)
      throw Error(ErrorCode::usage, output, "is named as an output twice");
  }
}

}  // namespace walsh
