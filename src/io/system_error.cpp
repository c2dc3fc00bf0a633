#include "io/system_error.h"

#include <cerrno>
#include <system_error>

#include "walsh/error.h"

namespace walsh {

void throw_system_error(const std::string& where, std::string_view action, int error_number) {
  throw Error(
      error_number == ENOMEM ? ErrorCode::limit : ErrorCode::io, where.empty() ? "''" : where,
      "cannot " + std::string(action) + ": " + std::generic_category().message(error_number));
}

}  // namespace walsh
