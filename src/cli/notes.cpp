#include "cli/notes.h"

#include "cli/output.h"
#include "io/printable.h"

namespace walsh::cli {
namespace {

void print_line(Color color, const char* kind, const std::string& text) {
  constexpr size_t kLongest = 1 << 14;
  write_message(color, kind, one_line(text.substr(0, kLongest)) + "\n");
}

}  // namespace

void print_note(const std::string& text) {
  print_line(Color::green, "walsh: note: ", text);
}

void print_warning(const std::string& text) {
  print_line(Color::yellow, "walsh: warning: ", text);
}

void print_notes(const std::vector<std::string>& texts) {
  for (const std::string& text : texts)
    print_note(text);
}

}  // namespace walsh::cli
