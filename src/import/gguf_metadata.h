// Reads the model metadata of a GGUF file by typed getters whose errors name file and key.
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
  // Pairs a tensor with the content of the file that holds its data.
  struct Found {
    const GgufTensor* tensor = nullptr;
    std::span<const std::byte> file;
  };

  // `content` must outlive this. Throws bad_input naming `path` without a general.architecture.
  GgufMetadata(const GgufContent& content, std::string path);

  // Registers the tensors of a file, which is the one with the metadata or another file of a split
  // model. Both arguments must outlive this.
  void add_file(const GgufContent& content, std::span<const std::byte> file);
  // Searches all files for a tensor. Its `tensor` is nullptr if there is none.
  Found find_tensor(std::string_view name) const;
  bool has_tensor(std::string_view name) const { return find_tensor(name).tensor != nullptr; }

  const std::string& architecture() const { return architecture_; }
  const std::string& path() const { return path_; }
  const GgufContent& content() const { return content_; }

  // These return a value by its key; a key that starts with a dot belongs to the architecture (".x"
  // means "llama.x" for a Llama). An absent key gives nothing. Another type throws bad_input naming
  // file and key.
  std::optional<int64_t> integer(std::string_view key) const;
  // Also refuses NaN, infinities and values below `least`.
  std::optional<double> number(std::string_view key, double least = 0) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const GgufValue* value(std::string_view key) const;

  // Also accepts one value per layer if all are equal.
  std::optional<int64_t> uniform_integer(std::string_view key) const;
  // Returns one value per layer; a single one counts for all. Throws bad_input if the key is absent
  // or has fewer values than there are layers.
  std::vector<int64_t> layer_integers(std::string_view key) const;
  // Returns the same as uniform_integer(), but throws bad_input if the key is absent.
  int64_t require(std::string_view key) const;
  // Returns one value per layer; more than `layers` are ignored. Throws bad_input for fewer.
  std::optional<std::vector<bool>> booleans(std::string_view key, int64_t layers) const;
  // Returns the number of layers without those for multi-token prediction at the end.
  int64_t layers() const;

  // Refuses keys of the architecture that would change what the model computes, unless they were
  // read or have a neutral value.
  void refuse_others() const;

  // Returns "PATH: metadata key KEY".
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
