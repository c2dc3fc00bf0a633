// Prints notes and warnings of the library (WeightSource::notes, LoadedModel::notes).
#pragma once

#include <string>
#include <vector>

namespace walsh::cli {

// Prints "walsh: note: TEXT" on standard error; a failure to write is ignored.
void print_note(const std::string& text);
void print_warning(const std::string& text);  // it prints "walsh: warning: TEXT"
void print_notes(const std::vector<std::string>& texts);

}  // namespace walsh::cli
