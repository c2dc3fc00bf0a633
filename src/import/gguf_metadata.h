// The metadata of a GGUF file that describe a model, read with names for errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/gguf.h"

namespace walsh {

class GgufMetadata {
 public:
  // A tensor, and the file that holds its data.
  struct Found {
    const GgufTensor* tensor = nullptr;
    std::span<const std::byte> file;
  };

  // `content` must outlive this. Throws bad_input naming `path` without a general.architecture.
  GgufMetadata(const GgufContent& content, std::string path);

  // Says which tensors there are: those of the file with the metadata, and of all others of a split
  // model. Both must outlive this.
  void add_file(const GgufContent& content, std::span<const std::byte> file);
  // Of any file; nullptr if there is no such tensor.
  Found find_tensor(std::string_view name) const;
  bool has_tensor(std::string_view name) const { return find_tensor(name).tensor != nullptr; }

  const std::string& architecture() const { return architecture_; }
  const std::string& path() const { return path_; }
  const GgufContent& content() const { return content_; }

  // Values by key; a key that starts with a dot belongs to the architecture ("." stands for
  // "llama." and so on). Nothing if absent. Throw bad_input naming file and key for another type.
  std::optional<int64_t> integer(std::string_view key) const;
  // Refuses NaN, infinities and what is below `least`, too.
  std::optional<double> number(std::string_view key, double least = 0) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const GgufValue* value(std::string_view key) const;

  // The same, where one value per layer may stand as well, if all are equal.
  std::optional<int64_t> uniform_integer(std::string_view key) const;
  // Throws bad_input if it is absent.
  int64_t require(std::string_view key) const;
  // One per layer, for `layers` layers; more are passed over. Throws bad_input for fewer.
  std::optional<std::vector<bool>> booleans(std::string_view key, int64_t layers) const;
  // Layers that a text passes: without those behind them that guess further tokens.
  int64_t layers() const;

  // Refuses keys of the architecture that change what a model computes, unless they were asked for
  // or have the value that changes nothing.
  void refuse_others() const;

  // "PATH: metadata key KEY".
  std::string where(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string reason) const;

 private:
  struct File {
    const GgufContent* content;
    std::span<const std::byte> bytes;
  };

  std::string full(std::string_view key) const;

  const GgufContent& content_;
  std::string path_, architecture_;
  std::vector<File> files_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace walsh
