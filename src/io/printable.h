// Text from a file made safe to show: in an error message, on a terminal, in a log.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace walsh {

// `text` with every byte outside printable ASCII written as \xNN, cut after `max_bytes` bytes (with
// "..." at the end).
std::string printable(std::string_view text, size_t max_bytes = 96);

// True if `text` is valid UTF-8 (no overlong forms, no surrogates) without control characters:
// what tensor names and metadata keys have to be.
bool is_plain_utf8(std::string_view text);

}  // namespace walsh
