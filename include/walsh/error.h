// Error is the one exception type of walsh, for everything that an input, an option or the system
// can cause.
//
// The library never prints and never exits; the command turns an Error into one line and an exit
// status. Programmer errors are assertions, not Errors.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace walsh {

enum class ErrorCode {
  internal,     // walsh has a bug
  usage,        // a flag, an option or a combination of options is wrong
  bad_input,    // a file's content is corrupt, truncated, hostile or not supported
  limit,        // memory or another limit would be exceeded
  io,           // the operating system refused to open, read or write
  interrupted,  // the user asked to stop
};

// Returns the command's exit status for a code. It is 1 for internal, 2 for usage, 3 for bad input,
// 4 for limit, 5 for I/O and 130 for interrupted.
int exit_status(ErrorCode code);

class Error : public std::exception {
 public:
  // `where` names the file, tensor, key or flag; `reason` says what was found and what was
  // expected.
  Error(ErrorCode code, std::string where, std::string reason);

  const char* what() const noexcept override { return text_.c_str(); }  // it is "where: reason"
  ErrorCode code() const noexcept { return code_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& reason() const noexcept { return reason_; }

 private:
  ErrorCode code_;
  std::string where_, reason_, text_;
};

}  // namespace walsh
