// The metadata of a GGUF file that describe a model, read with names for errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"

namespace walsh {

class GgufMetadata {
 public:
  // `content` must outlive this. Throws bad_input naming `path` without a general.architecture.
  GgufMetadata(const GgufContent& content, std::string path);

  const std::string& architecture() const { return architecture_; }
  const std::string& path() const { return path_; }
  const GgufContent& content() const { return content_; }

  // Values by key; a key that starts with a dot belongs to the architecture ("." stands for
  // "llama." and so on). Nothing if absent. Throw bad_input naming file and key for another type.
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const GgufValue* value(std::string_view key) const;

  // The same, where one value per layer may stand as well, if all are equal.
  std::optional<int64_t> uniform_integer(std::string_view key) const;
  // Throws bad_input if it is absent.
  int64_t require(std::string_view key) const;

  // "PATH: metadata key KEY".
  std::string where(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string reason) const;

 private:
  std::string full(std::string_view key) const;

  const GgufContent& content_;
  std::string path_, architecture_;
};

}  // namespace walsh
