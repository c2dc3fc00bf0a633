#include "api/prefix_files.h"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>

#include "model/fingerprint.h"
#include "model/positions.h"

namespace walsh {

// Names may have slashes, and be "..": all but letters, digits and - . _ are percent-encoded, and
// so is a dot at the beginning.
std::string prefix_folder(const std::string& folder, const std::string& model) {
  std::string name;
  for (const char c : model) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) != 0 || c == '-' || c == '_');
    if (plain || (c == '.' && !name.empty())) {
      name += c;
    } else {
      name += fmt::format("%{:02X}", byte);
    }
  }
  return (std::filesystem::path(folder) / name).string();
}

std::unique_ptr<PrefixStore> open_prefix_files(const LoadedModel& model, int64_t positions,
                                               const std::string& folder, uint64_t bytes,
                                               std::function<void(const std::string&)> note) {
  if (model.model.device.cuda || !model.model.parts.empty())
    throw Error(ErrorCode::usage, folder,
                "keys and values that are on a GPU cannot be kept in files yet: leave --cache-dir "
                "out, or choose --device cpu");
  PrefixStore::Options options;
  options.folder = folder;
  options.bytes = bytes;
  options.model = sha256(fingerprint(model.model, choose_positions(model.model.config, positions)) +
                         " config " + model.config_checksum.hex());
  options.note = std::move(note);
  return std::make_unique<PrefixStore>(std::move(options));
}

}  // namespace walsh
