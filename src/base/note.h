// The library prints nothing; in this way it reports what is not an error but worth knowing.
#pragma once

#include <functional>
#include <string>

namespace walsh {

// It is called with a sentence that names file or tensor, and may be empty.
using NoteFunction = std::function<void(const std::string&)>;

}  // namespace walsh
