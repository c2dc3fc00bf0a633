// How the library, which prints nothing, reports what is not an error but worth knowing.
#pragma once

#include <functional>
#include <string>

namespace walsh {

// Called with a sentence that names file or tensor; may be empty.
using NoteFunction = std::function<void(const std::string&)>;

}  // namespace walsh
