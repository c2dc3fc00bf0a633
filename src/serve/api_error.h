// What a client is told when a request cannot be served: OpenAI's error object.
#pragma once

#include <exception>
#include <string>

#include "serve/http.h"
#include "walsh/error.h"

namespace walsh {

// Leaves the code that reads or runs a request and becomes its answer.
class ApiError : public std::exception {
 public:
  // `param` names the field of the request, as its path; `code` is OpenAI's name of the error where
  // clients look for one. Both may be empty.
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

// What clients that make a prompt shorter look for.
inline constexpr const char* kContextLengthExceeded = "context_length_exceeded";

// {"error": {"message", "type", "param", "code"}}; the type follows from the status, and so does
// the code where there is none.
HttpResponse error_response(int status, const std::string& message, const std::string& param = "",
                            const std::string& code = "");

// What the library threw while it read a request: usage and limit 400, interrupted 503, anything
// else 500.
ApiError api_error(const Error& error);

}  // namespace walsh
