// Reads an HTTP request from arbitrary bytes, in pieces whose size is the first byte. The result
// must not depend on the pieces, and must stay within the limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "serve/http_message.h"

namespace {

struct Result {
  int refused = 0;
  bool done = false;
  walsh::HttpRequest request;
  size_t used = 0;

  // An error inside a chunk's extension may be found before its line is complete or with it.
  bool operator==(const Result& other) const {
    if (done != other.done) return false;
    return !done ||
           (used == other.used && request.method == other.request.method &&
            request.path == other.request.path && request.query == other.request.query &&
            request.headers == other.request.headers && request.body == other.request.body);
  }
};

Result parse(std::string_view text, size_t piece, const walsh::HttpOptions& limits) {
  walsh::HttpParser parser(limits);
  Result result;
  for (size_t end = 0; end < text.size() && !parser.done() && !parser.refused();) {
    end = std::min(text.size(), end + piece);
    const size_t used = parser.put(text.substr(result.used, end - result.used));
    if (used > end - result.used) std::abort();
    result.used += used;
    // The unparsed part is bounded by the limits, not by the client.
    if (!parser.done() && !parser.refused() && end - result.used > limits.header_bytes)
      std::abort();
  }
  result.refused = parser.refused();
  result.done = parser.done() && !parser.refused();
  result.request = parser.request();
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  walsh::HttpOptions limits;
  limits.body_bytes = 64;
  limits.header_bytes = 256;
  limits.header_fields = 8;
  limits.target_bytes = 32;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Result whole = parse(text, size, limits);
  if (!(whole == parse(text, 1 + data[0] % 32, limits))) std::abort();
  if (whole.request.body.size() > limits.body_bytes || whole.request.headers.size() > 8)
    std::abort();
  return 0;
}
