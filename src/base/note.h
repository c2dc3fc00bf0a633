// How the library, which prints nothing, says what is no error and yet should be known.
#pragma once

#include <functional>
#include <string>

namespace walsh {

// Called with a sentence that names file or tensor; may be empty.
using NoteFunction = std::function<void(const std::string&)>;

}  // namespace walsh
