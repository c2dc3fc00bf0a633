// Parses HTTP/1.x requests incrementally and formats the headers of answers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "serve/http.h"

namespace walsh {

// Parses one request from pieces of any size. It buffers no more bytes than the limits allow.
class HttpParser {
 public:
  explicit HttpParser(const HttpOptions& limits);
  ~HttpParser();

  // Consumes bytes from the front of `bytes` and returns how many; the rest must be passed again
  // with more appended. After done() it belongs to the next request.
  size_t put(std::string_view bytes);

  bool begun() const;
  bool header_done() const;
  bool done() const;
  // The first returns the status of the answer to a request that is refused, or 0 if it is not
  // refused; the second returns the reason.
  int refused() const;
  const std::string& reason() const;
  // Refuses the request for an external reason, unless it was refused already.
  void refuse(int status, const std::string& reason);

  // These are valid after the header.
  bool keep_alive() const;
  bool http10() const;
  bool expects_continue() const;
  // Returns the request. If it was refused, only the part that was read so far is set.
  HttpRequest& request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Says how the body of an answer is delimited.
struct HttpFraming {
  enum class Body { length, chunked, until_close };
  Body body = Body::length;
  bool keep_alive = false;
};

// Returns the status line and the header fields, ending with the empty line. Fields that the
// framing determines are omitted from `response`; control characters become spaces.
std::string response_head(const HttpResponse& response, const HttpFraming& framing);
// Returns whether answers with this status may have a body.
bool status_has_body(int status);
// Returns a chunk of a chunked body; an empty text gives the last chunk.
std::string chunk(std::string_view text);

}  // namespace walsh
