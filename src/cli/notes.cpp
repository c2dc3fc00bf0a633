#include "cli/notes.h"

#include <cstdio>

#include "io/printable.h"

namespace walsh::cli {
namespace {

void print_line(const char* kind, const std::string& text) {
  constexpr size_t kLongest = 1 << 14;
  std::fputs((kind + printable(text, kLongest) + "\n").c_str(), stderr);
}

}  // namespace

void print_note(const std::string& text) {
  print_line("walsh: note: ", text);
}

void print_warning(const std::string& text) {
  print_line("walsh: warning: ", text);
}

void print_notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    print_note(text);
}

}  // namespace walsh::cli
