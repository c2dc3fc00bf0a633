// HTTP/1.1 over TCP: connections, limits, deadlines, streams of server-sent events. What requests
// mean is the business of a handler.
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
  uint16_t port = 8080;  // 0: any that is free
  int threads = 2;       // that run handlers
  // Connections of clients that may use the server (HttpAdmission), and as many of others: those
  // have to show who they are while no newer ones come.
  int64_t connections = 1024;
  // Limits of a request: 413, 431 and 414 beyond.
  uint64_t body_bytes = uint64_t{8} << 20;
  uint32_t header_bytes = 16 << 10;
  int64_t header_fields = 100;
  size_t target_bytes = 4 << 10;
  // Bodies of all requests together that are being read or wait for a handler: who sends more than
  // a short one beyond that is answered 503.
  uint64_t held_bytes = uint64_t{128} << 20;
  // Text of one stream of events that waits to be written; a client that is behind is cut off.
  size_t queue_bytes = 16 << 20;
  // Deadlines in seconds: the header and the body of a request, a write that makes no progress, a
  // connection on which nothing happens, and between two comments in a stream of events.
  double header_seconds = 10, body_seconds = 30, write_seconds = 30, idle_seconds = 60;
  double ping_seconds = 15;
};

struct HttpRequest {
  std::string method, path, query;             // as they were sent: %XX is not decoded
  std::map<std::string, std::string> headers;  // names in lower case; of several the last
  std::string body;
  std::string peer;                       // address of the client
  std::shared_ptr<RequestRecord> record;  // a handler's, for its log

  std::string_view header(const std::string& name) const {  // in lower case; empty if there is none
    const auto it = headers.find(name);
    return it == headers.end() ? std::string_view() : it->second;
  }
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::map<std::string, std::string> headers;  // further ones
};

// The answer to one request. From any thread; a handler may keep it and return. What comes after
// the end, or when the client is gone, is dropped. If the last owner lets go of it without an
// answer, the client gets 500.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  // The whole answer at once.
  virtual void send(HttpResponse response) = 0;
  // Or a stream of server-sent events: the header now (without a body), then pieces as they are
  // written to the client, then the end.
  virtual void start_events(HttpResponse response) = 0;
  virtual void event(std::string text) = 0;
  virtual void end_events() = 0;
  // Calls `gone` once if the client goes away before the end of the answer (at once if it has
  // gone), from the thread that serves all connections: it must not block. A client that shuts down
  // its sending side cannot be told from one that went away, and counts as gone; a whole answer is
  // sent to it all the same, a stream of events ends.
  virtual void on_gone(std::function<void()> gone) = 0;
};

// Called by threads of the server; the request is the handler's to change. The message of an Error,
// or a general one for another exception, is answered with 500; a stream that has begun is cut off.
using HttpHandler =
    std::function<void(HttpRequest& request, const std::shared_ptr<HttpReply>& reply)>;
// The answer to what never reaches the handler or does not come from it (400, 408, 413, 414, 415,
// 417, 431, 500, 501, 503), from the thread that serves all connections. Of the request what was
// read of it, without its body.
using HttpErrorBody =
    std::function<HttpResponse(int status, const std::string& message, const HttpRequest& request)>;

// Says whether the server goes on with a request after it has read the header.
struct HttpAdmission {
  std::optional<HttpResponse> refusal;  // the answer if it may not
  // Its client may use the server. Connections of others give way to newer ones.
  bool known = true;
};
// Asked with the header of a request, before anything of the body is read or asked for, from the
// thread that serves all connections: it must not block. The request is its to change.
using HttpAdmit = std::function<HttpAdmission(HttpRequest& request)>;

// Who calls the handler: one of the threads for handlers; the thread that serves all connections,
// however busy the others are, for what waits for nothing; or one of two threads for what may take
// seconds, one request after the other, so that such requests hold up only each other and the
// memory that they need is that of one: texts without an answer of the model, and long bodies.
// These two have a lower priority than all other threads.
enum class HttpTurn : uint8_t { handlers, at_once, one_by_one, long_bodies };
using HttpTurnOf = std::function<HttpTurn(const HttpRequest& request)>;

class HttpServer {
 public:
  // Listens; throws usage for options that make no sense, io with the address for one that cannot
  // be had, limit when no threads can be started.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body,
             HttpTurnOf turn_of = nullptr, HttpAdmit admit = nullptr);
  // Closes everything, waits for run() to return and for handlers that still run.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Serves in the calling thread, once, until what shut_down() asked for is done.
  void run();
  // From any thread, without waiting: closes idle connections, lets answers end for so many seconds
  // and tells all further requests 503 until then, so that whoever watches over the server sees it;
  // then closes everything; run() returns. A second call can shorten the time.
  void shut_down(double drain_seconds);
  int64_t open_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace walsh
