#include "api/missing_tokenizer.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace walsh {
namespace {

// Tokenizers in these forms are not read.
constexpr auto kOtherTokenizers = std::to_array<std::string_view>(
    {"tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "tiktoken.model"});

// Returns what is missing, and where it comes from.
std::string what_is_missing(const WeightSource& source) {
  std::error_code error;
  const std::filesystem::path folder(source.path());
  if (!std::filesystem::is_directory(folder, error)) return "the file holds no tokenizer";
  for (const std::string_view name : kOtherTokenizers)
    if (std::filesystem::exists(folder / name, error))
      return "there is no tokenizer.json, only " + std::string(name) +
             " (AutoTokenizer.from_pretrained and save_pretrained of transformers make one of it)";
  return "there is no tokenizer.json";
}

}  // namespace

std::string missing_tokenizer(const WeightSource& source) {
  if (!source.tokenizer_json().empty()) return "";
  return what_is_missing(source) +
         ": a model without one can be quantized, inspected and measured (walsh bench), but "
         "neither reads nor writes text";
}

}  // namespace walsh
