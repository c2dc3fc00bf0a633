#include "serve/page.h"

#include <fmt/format.h>

#include <random>
#include <string>

#include "serve/sampling_fields.h"

namespace walsh {
namespace {

// Returns a nonce that only the script and style of this answer carry.
std::string new_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

HttpResponse page_response() {
  const std::string nonce = new_nonce();
  HttpResponse response;
  response.type = "text/html; charset=utf-8";
  response.body = kPageText;
  const auto put = [&](std::string_view place, const std::string& value) {
    for (size_t at = 0; (at = response.body.find(place, at)) != std::string::npos;)
      response.body.replace(at, place.size(), value);
  };
  put("@NONCE@", nonce);
  put("'@SAMPLING@'", sampling_inputs());
  response.headers = {
      {"Content-Security-Policy",
       fmt::format("default-src 'none'; script-src 'nonce-{0}'; style-src 'nonce-{0}'; "
                   "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'; require-trusted-types-for 'script'; "
                   "trusted-types 'none'",
                   nonce)},
      {"Cache-Control", "no-store"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
  };
  return response;
}

}  // namespace walsh
