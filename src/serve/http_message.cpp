#include "serve/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <limits>

namespace walsh {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

std::string_view view(beast::string_view text) {
  return {text.data(), text.size()};
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// Beast checks the syntax. This class refuses the other things that a server must refuse, and fills
// an HttpRequest.
class Parser final : public http::basic_parser<true> {
 public:
  explicit Parser(const HttpOptions& limits) : limits_(limits) {
    body_limit(limits.body_bytes);
    // HttpParser itself counts the bytes of the header.
    header_limit(std::numeric_limits<uint32_t>::max());
  }

  HttpRequest request;
  int version = 11, refused = 0;
  bool expects_continue = false;
  std::string reason;

  void refuse(int status, std::string why) {
    if (refused) return;
    refused = status;
    reason = std::move(why);
  }

 private:
  void refuse(beast::error_code& ec, int status, std::string why) {
    refuse(status, std::move(why));
    ec = http::error::bad_value;
  }

  void on_request_impl(http::verb, beast::string_view method, beast::string_view target,
                       int version_, beast::error_code& ec) override {
    version = version_;
    request.method = view(method);
    if (target.size() > limits_.target_bytes) {
      return refuse(
          ec, 414, fmt::format("the request target is longer than {} bytes", limits_.target_bytes));
    }
    std::string_view text = view(target);
    if (request.method != "CONNECT" && !split_target(text)) {
      refuse(ec, 400, "the request target is neither a path nor an http address");
    } else if (request.method == "CONNECT") {
      request.path = text;
    }
  }

  bool split_target(std::string_view text) {
    const std::string start = lower(text.substr(0, 8));
    const size_t scheme = start.starts_with("http://") ? 7 : start.starts_with("https://") ? 8 : 0;
    if (scheme != 0) {
      const size_t end = std::min(text.size(), text.find_first_of("/?", scheme));
      authority_ = text.substr(scheme, end - scheme);
      if (authority_.empty() || authority_[0] == ':' || authority_.find('@') != authority_.npos)
        return false;
      text = text.substr(end);
    } else if (!text.starts_with('/') && !(text == "*" && request.method == "OPTIONS")) {
      return false;
    }
    const size_t question = std::min(text.size(), text.find('?'));
    request.path = text.substr(0, question);
    if (request.path.empty()) request.path = "/";
    request.query = text.substr(std::min(text.size(), question + 1));
    return true;
  }

  void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}

  void on_field_impl(http::field field, beast::string_view name, beast::string_view value,
                     beast::error_code& ec) override {
    if (++fields_ > limits_.header_fields) {
      return refuse(ec, 431, fmt::format("more than {} header fields", limits_.header_fields));
    }
    // Trailer fields after a chunked body must not change the decisions of the header.
    if (header_seen_) return;
    switch (field) {
      case http::field::host:
        if (hosts_++ > 0) refuse(ec, 400, "more than one Host");
        break;
      case http::field::authorization:
        // A proxy in front could have checked the other one.
        if (keys_++ > 0) refuse(ec, 400, "more than one Authorization");
        break;
      case http::field::content_length:
        if (lengths_++ > 0 || view(value).find(',') != std::string_view::npos) {
          refuse(ec, 400, "more than one Content-Length");
        }
        break;
      case http::field::transfer_encoding:
        encodings_ += encodings_.empty() ? "" : ", ";
        encodings_ += lower(view(value));
        break;
      case http::field::expect:
        expects_continue = lower(view(value)) == "100-continue";
        if (!expects_continue) refuse(ec, 417, "the only Expect that is supported is 100-continue");
        break;
      case http::field::content_encoding:
        if (lower(view(value)) != "identity")
          refuse(ec, 415,
                 "bodies with a Content-Encoding are not supported: send the body as it is");
        break;
      default:
        break;
    }
    request.headers[lower(view(name))] = view(value);
  }

  void on_header_impl(beast::error_code& ec) override {
    header_seen_ = true;
    const bool encoded = request.headers.contains("transfer-encoding");
    if (version >= 11 && hosts_ == 0) {
      refuse(ec, 400, "Host is missing");
    } else if (encoded && (lengths_ > 0 || version < 11)) {
      // Two readers could disagree about the end of this request (request smuggling).
      refuse(ec, 400, "Transfer-Encoding together with Content-Length or HTTP/1.0");
    } else if (encoded && encodings_ != "chunked") {
      refuse(ec, 501, "the only Transfer-Encoding that is supported is chunked");
    }
    // The host of an absolute target counts, whatever Host says (RFC 9112, 3.2.2).
    if (!authority_.empty()) request.headers["host"] = authority_;
    expects_continue = expects_continue && version >= 11;
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>&, beast::error_code&) override {}

  std::size_t on_body_impl(beast::string_view body, beast::error_code&) override {
    request.body += view(body);
    return body.size();
  }

  void on_chunk_header_impl(std::uint64_t, beast::string_view, beast::error_code&) override {}

  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view body,
                                 beast::error_code&) override {
    request.body += view(body);
    return body.size();
  }

  void on_finish_impl(beast::error_code&) override {}

  const HttpOptions& limits_;
  int64_t fields_ = 0;
  int hosts_ = 0, lengths_ = 0, keys_ = 0;
  std::string encodings_;
  std::string authority_;  // an absolute target has this HOST[:PORT]
  bool header_seen_ = false;
};

}  // namespace

struct HttpParser::Impl {
  explicit Impl(const HttpOptions& options) : limits(options), parser(limits) {}

  size_t put_header(std::string_view bytes);
  size_t put_body(std::string_view bytes);
  size_t find_header_end(std::string_view text);
  // Passes bytes to the parser. Returns true if it needs more.
  bool feed(std::string_view bytes, size_t& used);

  const HttpOptions& limits;
  Parser parser;
  size_t skipped = 0;  // this many empty lines stood before the header
  size_t scanned = 0;  // this many bytes of the header were examined
};

// Returns the position after the header's empty line, or 0 if it has not arrived. Refuses bytes
// that cannot be part of a header.
size_t HttpParser::Impl::find_header_end(std::string_view text) {
  for (; scanned < text.size(); ++scanned) {
    const auto c = static_cast<unsigned char>(text[scanned]);
    const bool after_cr = scanned > 0 && text[scanned - 1] == '\r';
    const bool control = (c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7f;
    if (control || after_cr != (c == '\n')) {
      parser.refuse(400, "not an HTTP request: a control character in the header");
      return 0;
    }
    // RFC 9112 allows servers to refuse syntax that readers interpret differently.
    if (scanned > 0 && text[scanned - 1] == '\n' && (c == ' ' || c == '\t')) {
      parser.refuse(400, "not an HTTP request: a header field that continues on another line");
      return 0;
    }
    if (c == '\n' && scanned >= 3 && text[scanned - 2] == '\n') return scanned + 1;
  }
  return 0;
}

bool HttpParser::Impl::feed(std::string_view bytes, size_t& used) {
  beast::error_code error;
  used = parser.put(net::const_buffer(bytes.data(), bytes.size()), error);
  if (!error) return false;
  if (error == http::error::need_more) return true;
  if (error == http::error::body_limit) {
    parser.refuse(413, fmt::format("the body is longer than {} bytes", limits.body_bytes));
  } else {
    parser.refuse(400, "not an HTTP request: " + error.message());
  }
  return false;
}

// Passes the header to Beast as a whole. With pieces it would find some errors only at the end, and
// would apply its limit to the unparsed part only.
size_t HttpParser::Impl::put_header(std::string_view bytes) {
  size_t used = 0;
  // Old clients send an extra line end after a body, which is not part of the next request.
  while (scanned == 0 && skipped <= limits.header_bytes && bytes.substr(used).starts_with("\r\n")) {
    used += 2;
    skipped += 2;
  }
  const std::string_view rest = bytes.substr(used);
  if (scanned == 0 && rest == "\r") return used;
  const size_t room = limits.header_bytes - std::min<size_t>(skipped, limits.header_bytes);
  const size_t end = find_header_end(rest.substr(0, room));
  if (parser.refused) return used;
  if (end == 0) {
    if (rest.size() > room || room == 0) {
      const bool in_target = rest.substr(0, room).find('\n') == std::string_view::npos;
      parser.refuse(in_target ? 414 : 431,
                    fmt::format("the {} is longer than {} bytes",
                                in_target ? "request line" : "header", limits.header_bytes));
    }
    return used;
  }
  size_t fed = 0;
  const bool more = feed(rest.substr(0, end), fed);
  if (more || !parser.is_header_done()) parser.refuse(400, "not an HTTP request");
  return used + fed;
}

size_t HttpParser::Impl::put_body(std::string_view bytes) {
  size_t used = 0;
  while (!parser.is_done() && !parser.refused && used < bytes.size()) {
    const std::string_view rest = bytes.substr(used);
    // Beast asserts that the last chunk has at least five bytes, which is the least for a valid
    // one.
    if (parser.chunked() && rest.size() < 5) break;
    size_t fed = 0;
    const size_t body = parser.request.body.size();
    const bool more = feed(rest, fed);
    used += fed;
    // One step reads a piece of the body, the bytes between two chunks, or those after the last.
    const size_t between = more ? rest.size() - fed : fed;
    if (parser.request.body.size() == body && between > limits.header_bytes) {
      parser.refuse(431, fmt::format("the text between two chunks is longer than {} bytes",
                                     limits.header_bytes));
    }
    if (more || fed == 0) break;
  }
  return used;
}

HttpParser::HttpParser(const HttpOptions& limits) : impl_(std::make_unique<Impl>(limits)) {}
HttpParser::~HttpParser() = default;

size_t HttpParser::put(std::string_view bytes) {
  size_t used = 0;
  if (!header_done() && !refused()) used = impl_->put_header(bytes);
  if (header_done() && !refused()) used += impl_->put_body(bytes.substr(used));
  return used;
}

void HttpParser::refuse(int status, const std::string& reason) {
  impl_->parser.refuse(status, reason);
}

bool HttpParser::begun() const {
  return impl_->scanned > 0;
}
bool HttpParser::header_done() const {
  return impl_->parser.is_header_done();
}
bool HttpParser::done() const {
  return impl_->parser.is_done();
}
int HttpParser::refused() const {
  return impl_->parser.refused;
}
const std::string& HttpParser::reason() const {
  return impl_->parser.reason;
}
bool HttpParser::keep_alive() const {
  return impl_->parser.keep_alive();
}
bool HttpParser::http10() const {
  return impl_->parser.version < 11;
}
bool HttpParser::expects_continue() const {
  return impl_->parser.expects_continue;
}
HttpRequest& HttpParser::request() {
  return impl_->parser.request;
}

namespace {

std::string printable_field(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

bool status_has_body(int status) {
  return status >= 200 && status != 204 && status != 304;
}

std::string response_head(const HttpResponse& response, const HttpFraming& framing) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(response.status));
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nServer: walsh\r\nConnection: {}\r\n", response.status,
                  view(reason), framing.keep_alive ? "keep-alive" : "close");
  if (status_has_body(response.status)) {
    if (!response.type.empty()) head += "Content-Type: " + printable_field(response.type) + "\r\n";
    if (framing.body == HttpFraming::Body::length) {
      head += fmt::format("Content-Length: {}\r\n", response.body.size());
    } else if (framing.body == HttpFraming::Body::chunked) {
      head += "Transfer-Encoding: chunked\r\n";
    }
  }
  for (const auto& [name, value] : response.headers) {
    const std::string key = lower(name);
    if (key == "connection" || key == "content-length" || key == "transfer-encoding" ||
        key == "server" || key == "content-type") {
      continue;
    }
    head += printable_field(name) + ": " + printable_field(value) + "\r\n";
  }
  return head + "\r\n";
}

std::string chunk(std::string_view text) {
  return text.empty() ? "0\r\n\r\n" : fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

}  // namespace walsh
