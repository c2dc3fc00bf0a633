// Serves HTTP/1.1 over TCP, with limits, deadlines and event streams. A handler interprets the
// requests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace walsh {

struct RequestRecord;

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0 means any free port
  int threads = 2;       // they run handlers
  // This many connections of clients that may use the server (HttpAdmission) are allowed, and
  // separately this many of clients that have not been admitted yet; of the latter the oldest gives
  // way to a new one.
  int64_t connections = 1024;
  // A request has these limits, beyond which the answer is 413, 431 or 414.
  uint64_t body_bytes = uint64_t{8} << 20;
  uint32_t header_bytes = 16 << 10;
  int64_t header_fields = 100;
  size_t target_bytes = 4 << 10;
  // This many bytes of request bodies may be read at a time or wait for a handler. Beyond that,
  // requests with more than a short body are answered 503.
  uint64_t held_bytes = uint64_t{128} << 20;
  // This many bytes of answers may wait until their clients read them. Beyond that, an answer with
  // more than a short body becomes 503, and an event stream that is that far behind is cut off.
  uint64_t answer_bytes = uint64_t{1} << 30;
  // This many bytes of an event stream may wait to be written; a client that falls behind is
  // disconnected.
  size_t queue_bytes = 16 << 20;
  // These deadlines, in seconds, are for the header and the body of a request, for a write without
  // progress, for an idle connection, and between two keep-alive comments in an event stream.
  double header_seconds = 10, body_seconds = 30, write_seconds = 30, idle_seconds = 60;
  double ping_seconds = 15;
};

struct HttpRequest {
  std::string method, path, query;  // they are as sent: %XX is not decoded
  // Names are in lower case; the last of equal names counts.
  std::map<std::string, std::string> headers;
  std::string body;
  std::string peer;                       // it is the address of the client
  std::shared_ptr<RequestRecord> record;  // a handler writes it for its log

  // `name` is in lower case; an absent header is empty.
  std::string_view header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string_view() : it->second;
  }
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::map<std::string, std::string> headers;  // they are sent in addition
};

// Event streams have this type. They get comments that keep the connection alive.
inline constexpr const char* kEventStream = "text/event-stream";

// Answers one request. It is thread-safe; a handler may keep it and return. Calls after the end, or
// after the client has disconnected, are ignored. If the last owner releases it without an answer,
// the client gets 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // Sends a whole answer.
  virtual void send(HttpResponse response) = 0;
  // Sends a stream of `response.type` instead, such as kEventStream. The header, without a body,
  // comes first, then pieces, then the end.
  virtual void start_events(HttpResponse response) = 0;
  virtual void event(std::string text) = 0;
  virtual void end_events() = 0;
  // Calls `gone` once if the client disconnects before the end of the answer (at once if it already
  // has), on the thread that serves all connections, so that it must not block. A client that shuts
  // down its sending side cannot be told from one that disconnected, and counts as gone; a whole
  // answer is still sent to it, but an event stream ends.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// A handler is called on the server's threads and may modify the request. An exception is answered
// with 500 and the message of an Error, or a general message; a stream that has begun is cut off.
using HttpHandler =
    std::function<void(HttpRequest& request, const std::shared_ptr<HttpReply>& reply)>;
// Makes the answer for errors outside a handler (400, 408, 413, 414, 415, 417, 431, 500, 501, 503),
// on the thread that serves all connections. `request` has what was read so far, without its body.
using HttpErrorBody =
    std::function<HttpResponse(int status, const std::string& message, const HttpRequest& request)>;

// Decides about a request after its header was read.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;  // it is the answer if the request is not allowed
  // Says whether the client may use the server. Connections of other clients give way to new ones.
  bool known = true;
};
// This is called with a request's header before any of the body is read or asked for, on the thread
// that serves all connections, so that it must not block. It may modify the request.
using HttpAdmit = std::function<HttpAdmission(HttpRequest& request)>;

// Says which thread calls the handler. `handlers` means one of the pool. `at_once` means the thread
// that serves all connections, for requests that never wait, however busy the pool is. `one_by_one`
// and `long_bodies` mean one of two threads of lower priority that take one request after the
// other, for texts without an answer of the model and for long bodies. These may take seconds, and
// so delay only each other and need the memory of one.
enum class HttpTurn : uint8_t { handlers, at_once, one_by_one, long_bodies };
using HttpTurnOf = std::function<HttpTurn(const HttpRequest& request)>;

class HttpServer {
 public:
  // Listens. Throws usage for impossible options, io naming an address that is not available, and
  // limit if threads cannot be started.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body,
             HttpTurnOf turn_of = nullptr, HttpAdmit admit = nullptr);
  // Closes all connections and waits for run() and for running handlers to return.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Serves on the calling thread until shut_down() has completed. Call it once.
  void run();
  // This is thread-safe and does not wait. It closes idle connections, gives running answers
  // `drain_seconds` to end and answers further requests with 503 meanwhile, so that load balancers
  // notice; then closes everything, and run() returns. A second call can shorten the time.
  void shut_down(double drain_seconds);
  int64_t open_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
