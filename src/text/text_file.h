// Reads the text that a model is measured or calibrated with.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

// Returns the UTF-8 text of a file or pipe. Its last character may be cut, as by `head -c`. Throws
// like read_text_input with at most kMaxTextBytes, and bad_input for anything else but text,
// because a figure that was measured on the bytes of an archive or of a text in another encoding
// would look like any other.
std::string read_utf8_text(const std::string& path);
// Checks text that has been read already in the same way.
void check_utf8_text(std::string_view text, const std::string& path);

}  // namespace walsh
