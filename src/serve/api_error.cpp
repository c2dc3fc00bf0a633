#include "serve/api_error.h"

#include "io/json.h"

namespace walsh {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 501:
      return "not_supported_error";  // this is llama.cpp's name
    case 503:
      return "unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

ApiError::ApiError(int status, std::string message, std::string param, std::string code)
    : status_(status),
      message_(std::move(message)),
      param_(std::move(param)),
      code_(std::move(code)) {}

HttpResponse ApiError::response() const {
  return error_response(status_, message_, param_, code_);
}

HttpResponse error_response(int status, const std::string& message, const std::string& param,
                            const std::string& code) {
  const Json body = {{"error",
                      {{"message", message},
                       {"type", type_of(status)},
                       {"param", param.empty() ? Json() : Json(param)},
                       {"code", code.empty() ? Json(status) : Json(code)}}}};
  HttpResponse response;
  response.status = status;
  response.body = format_json(body, -1);
  if (status == 401) response.headers.emplace("WWW-Authenticate", "Bearer");
  if (status == 415) response.headers.emplace("Accept-Encoding", "identity");
  if (status == 429 || status == 503) response.headers.emplace("Retry-After", "1");
  return response;
}

ApiError api_error(const Error& error) {
  switch (error.code()) {
    case ErrorCode::usage:
    case ErrorCode::limit:
      return {400, error.what()};
    case ErrorCode::interrupted:
      return {503,
              "the answer was broken off: the client closed its side of the connection, or the "
              "server is shutting down"};
    default:
      return {500, error.what()};
  }
}

}  // namespace walsh
