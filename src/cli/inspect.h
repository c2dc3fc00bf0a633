// Implements `walsh inspect` for models that are no files of walsh.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

#include "rotate/rotation.h"

namespace walsh::cli {

// Prints the content of a Hugging Face folder, whose tensors have walsh's codes or are plain. Every
// tensor is looked up, and with `check` decoded. `step` is called before each with the number done,
// the total and the tensor's name. Throws as open_stored.
void inspect_folder(const std::string& path, bool check, bool json,
                    const std::function<void(size_t, size_t, const std::string&)>& step);

// Prints a description of a GGUF file of another program and its tensors, with the names in the
// file and in the checkpoint. With `check`, reads every tensor as a model would, after calling
// `step`. Throws as open_gguf_checkpoint.
void inspect_gguf(const std::string& path, bool check, bool json,
                  const std::function<void(size_t done, size_t count, const std::string&)>& step);

// Formats a rotation for listings.
inline std::string rotation_text(const Rotation& rotation) {
  if (rotation.kind == RotationKind::none) return "none";
  return fmt::format("{}-{}{} seed {}", rotation_kind_name(rotation.kind), rotation.block,
                     rotation.signs ? "" : " no signs", rotation.seed);
}

}  // namespace walsh::cli
