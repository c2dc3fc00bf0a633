// The text of HTTP/1.x: requests read from bytes as they come, heads of answers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace walsh {

// Reads one request from bytes in pieces of any size. Holds no more of them than the limits allow.
class HttpParser {
 public:
  explicit HttpParser(const HttpOptions& limits);
  ~HttpParser();

  // Takes bytes from the front of `bytes` and returns how many: all that can be understood so far.
  // What is left comes again with more behind it; after done() it belongs to the next request.
  size_t put(std::string_view bytes);

  bool begun() const;
  bool header_done() const;
  bool done() const;
  // Of a request that is refused the status of the answer and the reason; otherwise 0.
  int refused() const;
  const std::string& reason() const;
  // Refuses it for a reason from outside, unless it has been refused.
  void refuse(int status, const std::string& reason);

  // Valid when the header is done.
  bool keep_alive() const;
  bool http10() const;
  bool expects_continue() const;
  // Of a refused request what was read of it.
  HttpRequest& request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// How an answer is sent.
struct HttpFraming {
  enum class Body { length, chunked, until_close };
  Body body = Body::length;
  bool keep_alive = false;
};

// Status line and header fields with the empty line behind them. Fields of `response` that the
// framing decides are left out, control characters in them become spaces.
std::string response_head(const HttpResponse& response, const HttpFraming& framing);
// Whether an answer with this status can have a body.
bool status_has_body(int status);
// A piece of a chunked body; of an empty text the end.
std::string chunk(std::string_view text);

}  // namespace walsh
