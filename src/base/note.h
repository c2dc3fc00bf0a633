// Lets the library report what is worth knowing but no error, because the library itself prints
// nothing.
#pragma once

#include <functional>
#include <string>

namespace walsh {

// Is called with a sentence that names the file or the tensor. The function may be empty.
using NoteFunction = std::function<void(const std::string&)>;

}  // namespace walsh
