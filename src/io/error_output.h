// Writes to standard error for programs that must not wait until somebody reads it.
#pragma once

#include <chrono>
#include <string_view>

namespace walsh {

// Writes `text` to standard error. Gives up, and returns false, where that is closed or full, or
// where its reader (a pipe that nobody empties, a stopped terminal) takes nothing for `patience`.
// Thread-safe.
bool write_error_output(std::string_view text, std::chrono::milliseconds patience);

}  // namespace walsh
