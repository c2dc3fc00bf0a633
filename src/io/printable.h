// Makes text from a file safe to show in an error message, on a terminal or in a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace walsh {

// Returns `text` with every byte outside printable ASCII written as \xNN, cut after `max_bytes`
// bytes (with "..." at the end).
std::string printable(std::string_view text, size_t max_bytes = 96);

// Returns `text` for a terminal: control characters (C0 except line feeds and tabs, DEL, C1),
// characters that change the text direction or break the line, and every byte of ill-formed UTF-8
// are written as \xNN for each byte. All other characters stay.
std::string terminal_text(std::string_view text);

// Does the same on one line: each run of line feeds, carriage returns and tabs becomes a space, and
// none is left at the end.
std::string one_line(std::string_view text);

// Returns whether `text` is valid UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

// Returns whether `text` is valid UTF-8 without control characters, as tensor names and metadata
// keys must be.
bool is_plain_utf8(std::string_view text);

}  // namespace walsh
