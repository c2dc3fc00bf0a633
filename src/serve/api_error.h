// Makes errors as clients see them, which is OpenAI's error object.
#pragma once

#include <exception>
#include <string>

#include "serve/http.h"
#include "walsh/error.h"

namespace walsh {

// Code that reads or runs a request throws this; it becomes the answer.
class ApiError : public std::exception {
 public:
  // `param` is the path of the offending field; `code` is OpenAI's error code where clients check
  // for one. Both may be empty.
  ApiError(int status, std::string message, std::string param = "", std::string code = "");

  const char* what() const noexcept override { return message_.c_str(); }
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }
  HttpResponse response() const;

 private:
  int status_;
  std::string message_, param_, code_;
};

// Clients shorten their prompt when they get this code.
inline constexpr const char* kContextLengthExceeded = "context_length_exceeded";

// Makes {"error": {"message", "type", "param", "code"}}; the type follows from the status, and so
// does the code if none is given.
HttpResponse error_response(int status, const std::string& message, const std::string& param = "",
                            const std::string& code = "");

// Converts an Error of the library: usage and limit become 400, interrupted 503, anything else 500.
ApiError api_error(const Error& error);

}  // namespace walsh
