#include "cli/notes.h"

#include <cstdio>

#include "io/printable.h"

namespace walsh::cli {

void print_note(const std::string& text) {
  constexpr size_t kLongest = 1 << 14;
  std::fputs(("walsh: note: " + printable(text, kLongest) + "\n").c_str(), stderr);
}

void print_notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    print_note(text);
}

}  // namespace walsh::cli
