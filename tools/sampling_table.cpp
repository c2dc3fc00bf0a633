// Writes the files that follow from the table of sampling options
// (src/generate/sampling_options.cpp) and are not compiled, which are the table of docs/sampling.md
// and the argument types of the Python package.
//
//     sampling_table FOLDER           writes the files of that checkout
//     sampling_table --check FOLDER   prints the files that are older than the table; status 1 if
//     any
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <variant>

#include "generate/sampler.h"
#include "generate/sampling_options.h"

namespace {

using walsh::SamplingOption;
using Text = std::string;

constexpr size_t kColumns = 100;

// Returns `names` in code type, with commas between them.
template <class Names>
Text in_code(const Names& names) {
  Text text;
  for (const auto& name : names)
    text += Text(text.empty() ? "`" : ", `") + name + "`";
  return text;
}

std::vector<Text> split(const Text& text) {
  std::vector<Text> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Returns a default such as "0.8 (model)". The key of generation_config.json is named where it has
// another name.
Text shown_default(const SamplingOption& option) {
  const Text text = default_text(option);
  if (option.key == nullptr) return text;
  return text +
         (option.name == Text(option.key) ? " (model)" : Text(" (model: `") + option.key + "`)");
}

Text table() {
  Text text =
      "| field | flag | values | default | what it does | also in | GPU |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const SamplingOption& option : walsh::sampling_options())
    text += "| " + in_code(option.names()) + " | " + in_code(split(option.flags)) + " | " +
            range_text(option) + " | " + shown_default(option) + " | " + option.help + " | " +
            option.apis + " | " + (option.devices ? "yes" : "") + " |\n";
  return text + "\nThe steps and their usual order: " + in_code(walsh::sampler_steps({})) + ".\n";
}

// Returns `page` with `text` between its markers.
Text with_table(const Text& page, const Text& text) {
  const Text begin = "<!-- options:begin -->\n", end = "<!-- options:end -->";
  const size_t from = page.find(begin), to = page.find(end);
  if (from == page.npos || to == page.npos) throw std::runtime_error("the page has no markers");
  return page.substr(0, from + begin.size()) + text + page.substr(to);
}

Text python_type(const SamplingOption& option) {
  using Option = SamplingOption;
  return std::visit(
      [](auto member) -> Text {
        using T = decltype(member);
        if constexpr (std::is_same_v<T, Option::Number<float>>) return "float";
        if constexpr (std::is_same_v<T, Option::Number<int>>) return "int";
        if constexpr (std::is_same_v<T, Option::Seed>) return "int";
        if constexpr (std::is_same_v<T, Option::Flag>) return "bool";
        if constexpr (std::is_same_v<T, Option::Biases>) return "Mapping[int, float]";
        return "Sequence[str]";
      },
      option.member);
}

// Returns a comment of as many lines as it takes.
Text python_comment(const Text& text) {
  const Text start = "    #: ";
  Text lines = start;
  size_t column = start.size();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const Text word = text.substr(at, end - at);
    if (column + 1 + word.size() > kColumns) {
      lines += "\n" + start;
      column = start.size();
    } else if (column > start.size()) {
      lines += " ";
      ++column;
    }
    lines += word;
    column += word.size();
    at = end + 1;
  }
  return lines + "\n";
}

Text python() {
  Text text =
      "\"\"\"Types of the arguments that say how tokens are chosen.\"\"\"\n"
      "# Written by tools/sampling_table.cpp.\n"
      "from typing import Mapping, Optional, Sequence, TypedDict\n\n\n"
      "class SamplingOptions(TypedDict, total=False):\n"
      "    \"\"\"What is None or not given is what the model's files say, else the "
      "default.\"\"\"\n\n";
  for (const SamplingOption& option : walsh::sampling_options()) {
    text += python_comment(Text(option.help) + " (" + range_text(option) + ") [" +
                           default_text(option) + "]");
    for (const char* name : option.names())
      text += Text("    ") + name + ": Optional[" + python_type(option) + "]\n";
  }
  return text;
}

Text read(const Text& path) {
  std::ifstream file(path);
  return Text(std::istreambuf_iterator<char>(file), {});
}

// Writes the file at `path` unless this is a check. Returns whether it was as it should be.
bool settle(const Text& path, const Text& wanted, bool check) {
  if (read(path) == wanted) return true;
  if (check) {
    std::cout << path << " is older than the table of sampling options: sampling_table FOLDER\n";
    return false;
  }
  std::ofstream file(path);
  file << wanted;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::strcmp(argv[1], "--check") == 0;
  if (argc != 2 && !check) {
    std::cerr << "usage: sampling_table [--check] FOLDER\n";
    return 2;
  }
  try {
    const Text folder = argv[argc - 1];
    const Text page = folder + "/docs/sampling.md";
    const bool pages = settle(page, with_table(read(page), table()), check);
    const bool types = settle(folder + "/python/walsh/_sampling.py", python(), check);
    return pages && types ? 0 : 1;
  } catch (const std::exception& e) {
    std::cerr << "sampling_table: " << e.what() << "\n";
    return 2;
  }
}
