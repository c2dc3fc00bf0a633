#include "api/outputs.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "import/gguf_checkpoint.h"
#include "io/atomic_file.h"
#include "io/checkpoint.h"
#include "io/checkpoint_files.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace fs = std::filesystem;

// Returns the same text for two names of one file, which need not exist.
std::string place_of(const std::string& path) {
  std::error_code error;
  const fs::path place = fs::weakly_canonical(fs::absolute(path, error), error);
  return error ? path : place.string();
}

// Refuses a new file that the readers of the checkpoint would take for a part of it.
void refuse_part_of(const std::string& folder, const std::string& output) {
  std::error_code error;
  const fs::path place(place_of(output));
  const std::string name = place.filename();
  if (std::find(checkpoint_files::kAll.begin(), checkpoint_files::kAll.end(), name) !=
          checkpoint_files::kAll.end() &&
      fs::equivalent(place.parent_path(), folder, error))
    throw Error(ErrorCode::usage, output,
                "would become a part of the checkpoint beside it: choose another name");
}

}  // namespace

void check_outputs(const std::vector<std::string>& outputs, const std::string& folder,
                   std::vector<std::string> inputs, const std::string& new_folder) {
  std::error_code unreadable;
  const bool is_gguf = is_foreign_gguf(folder), is_folder = fs::is_directory(folder, unreadable);
  if (is_gguf || is_folder) {
    const Checkpoint checkpoint = is_gguf ? open_gguf_checkpoint(folder) : Checkpoint::open(folder);
    inputs.insert(inputs.end(), checkpoint.files().begin(), checkpoint.files().end());
  }
  std::set<std::string> places;
  if (!new_folder.empty()) places.insert(place_of(new_folder));
  for (const std::string& output : outputs) {
    if (output.empty()) continue;
    check_output(output, inputs);
    if (is_folder) refuse_part_of(folder, output);
    if (!places.insert(place_of(output)).second)
      throw Error(ErrorCode::usage, output, "is named as an output twice");
  }
}

}  // namespace walsh
