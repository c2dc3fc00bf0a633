// Turns failures of system calls into Errors.
#pragma once

#include <string>
#include <string_view>

namespace walsh {

// Throws limit if memory is short, io otherwise: "WHERE: cannot ACTION: the system's text for
// `error_number`".
[[noreturn]] void throw_system_error(const std::string& where, std::string_view action,
                                     int error_number);

}  // namespace walsh
