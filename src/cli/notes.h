// What the library tells besides results and errors (WeightSource::notes, LoadedModel::notes).
#pragma once

#include <string>
#include <vector>

namespace walsh::cli {

// One line on standard error, "walsh: note: TEXT". Nothing depends on its arrival.
void print_note(const std::string& text);
void print_warning(const std::string& text);  // "walsh: warning: TEXT"
void print_notes(const std::vector<std::string>& texts);

}  // namespace walsh::cli
