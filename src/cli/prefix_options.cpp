#include "cli/prefix_options.h"

#include <chrono>

#include "api/prefix_files.h"
#include "cli/terminal.h"
#include "io/error_output.h"
#include "io/printable.h"

namespace walsh::cli {
namespace {

// A note must not wait for a pipe that nobody reads, since texts would wait with it.
void tell(const std::string& note) {
  write_error_output("walsh: note: " + one_line(note) + "\n", std::chrono::milliseconds(200));
}

}  // namespace

void PrefixOptions::add_to(const FlagGroup& group) {
  const Flag& folder = group.add(
      "--cache-dir", &folder_,
      "Folder in which cached prefixes survive a restart; only its owner can read the files, "
      "which hold the texts (CPU)",
      {.value = "DIR"});
  group.add(
      "--cache-size", &size_,
      "Bytes of that folder, of each model, such as 20G; the files that were not used for the "
      "longest time are removed [8GiB]",
      {.value = "SIZE", .needed = &folder});
}

uint64_t PrefixOptions::bytes() const {
  return size_.empty() ? PrefixStore::Options{}.bytes : parse_bytes(size_, "--cache-size");
}

void PrefixOptions::prepare() const {
  bytes();
  if (!folder_.empty()) PrefixStore::make_folder(folder_);
}

std::function<std::unique_ptr<PrefixStore>(const LoadedModel& model)> PrefixOptions::opener(
    int64_t positions, const std::string& name) const {
  if (folder_.empty()) return {};
  const std::string folder = name.empty() ? folder_ : prefix_folder(folder_, name);
  return [folder, positions, bytes = bytes()](const LoadedModel& model) {
    return open_prefix_files(model, positions, folder, bytes, tell);
  };
}

void add_shift_options(const FlagGroup& group, ServiceOptions& options) {
  group.add("--context-shift,!--no-context-shift", &options.shifts,
            "A text that fills its context goes on without half of the tokens after --keep");
  group.add("--keep", &options.keep,
            "Tokens of the prompt that such a text keeps; -1: all, at most half of the context",
            {.shown = true, .range = between(-1, 1 << 30)});
}

}  // namespace walsh::cli
