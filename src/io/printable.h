// Text from a file made safe to show: in an error message, on a terminal, in a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace walsh {

// `text` with every byte outside printable ASCII written as \xNN, cut after `max_bytes` bytes (with
// "..." at the end).
std::string printable(std::string_view text, size_t max_bytes = 96);

// `text` for a terminal: a control character (C0 but for line feeds and tabs, DEL, C1), one that
// turns the direction of what follows or breaks the line, and every byte of ill-formed UTF-8 are
// written as \xNN for each byte. All other characters stay.
std::string terminal_text(std::string_view text);

// The same on one line: each run of line feeds, carriage returns and tabs becomes a space, none is
// left at the end. For what a file says in a message or a table.
std::string one_line(std::string_view text);

// True if `text` is valid UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

// The same without control characters: what tensor names and metadata keys have to be.
bool is_plain_utf8(std::string_view text);

}  // namespace walsh
