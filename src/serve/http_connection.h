// Serves one connection. It reads requests, passes them to handlers one after another and writes
// the answers.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "serve/http.h"
#include "serve/http_exchange.h"
#include "serve/http_message.h"

namespace walsh {

// Counts the memory of a request's body or of an answer in the server's total while this exists.
class HeldBytes {
 public:
  HeldBytes(std::atomic<uint64_t>& all, uint64_t most) : all_(all), most_(most) {}
  ~HeldBytes() { all_ -= bytes_; }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  // Returns false, and stops counting, if there is no room for this many bytes.
  bool has_room(uint64_t bytes) {
    all_ += bytes - bytes_;
    bytes_ = bytes;
    if (bytes <= kShort || all_ <= most_) return true;
    all_ -= std::exchange(bytes_, 0);
    return false;
  }

 private:
  static constexpr uint64_t kShort = 64 << 10;

  std::atomic<uint64_t>& all_;
  const uint64_t most_;
  uint64_t bytes_ = 0;
};

// Holds the state that the connections of a server share. Everything except the handlers runs on
// the thread that runs `io`, so no locks are needed.
struct HttpContext {
  HttpContext(const HttpOptions& options_, HttpHandler handler_, HttpErrorBody error_body_,
              HttpTurnOf turn_of_, HttpAdmit admit_)
      : options(options_),
        handler(std::move(handler_)),
        error_body(std::move(error_body_)),
        turn_of(std::move(turn_of_)),
        admit(std::move(admit_)),
        mailbox(std::make_shared<Mailbox>(io)) {}

  // Returns the server's own answer to an error.
  HttpResponse error(int status, const std::string& message, const HttpRequest& request) const;

  const HttpOptions options;
  const HttpHandler handler;
  const HttpErrorBody error_body;
  const HttpTurnOf turn_of;
  const HttpAdmit admit;
  boost::asio::io_context io{1};
  std::shared_ptr<Mailbox> mailbox;
  boost::asio::thread_pool *handlers = nullptr, *one_by_one = nullptr, *long_bodies = nullptr;
  // These callbacks are the server's: `acquaint` admits a connection as one of a client that may
  // use it, unless there are too many; `answered` is called when an answer has ended.
  std::function<bool(uint64_t connection)> acquaint;
  std::function<void()> answered;
  int64_t answering = 0;  // this many requests are with handlers
  bool draining = false;  // new requests are answered 503
  bool ending = false;    // nothing more is sent
  std::atomic<uint64_t> held_bytes{0}, answer_bytes{0};
  std::array<char, 64 << 10> scratch;  // one read uses this buffer
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnection(HttpContext& context, boost::asio::ip::tcp::socket socket, uint64_t id);
  ~HttpConnection();

  // Serves the connection until it is closed. The caller must keep it alive that long.
  boost::asio::awaitable<void> serve();
  // This is called when the server starts to drain or end; it wakes a connection that waits for a
  // request.
  void drain();
  // Closes the connection at once.
  void abort();

 private:
  using Error = boost::system::error_code;
  template <typename T = void>
  using Awaitable = boost::asio::awaitable<T>;

  Awaitable<> read_request(HttpParser& parser, HeldBytes& held);
  void admit(HttpParser& parser);
  Awaitable<bool> read_more(Clock::time_point deadline);
  Awaitable<bool> write(std::string text);
  Awaitable<bool> refuse(const HttpResponse& response, bool head, bool keep_alive);
  Awaitable<> linger();

  void start_handler(HttpParser& parser, std::shared_ptr<HeldBytes> held);
  Awaitable<bool> serve_request(HttpParser& parser, std::shared_ptr<HeldBytes> held);
  Awaitable<bool> answer(bool http10, bool head, bool keep_alive);
  Awaitable<bool> stream(HttpFraming::Body body);
  Awaitable<> wait_for_change(Clock::time_point until);
  bool answerable() const;
  void reset();

  void arm(Clock::time_point deadline);
  void disarm();
  void watch();
  void look();

  HttpContext& context_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_, change_, watch_pause_;
  std::string received_;  // it was received but not parsed yet
  std::shared_ptr<Exchange> exchange_;
  std::optional<HttpResponse> refusal_;  // The request that is being read gets it.
  std::string peer_;
  HttpRequest about_;  // it has method and path of the request that is being answered
  const uint64_t id_;
  bool known_ = false;  // the client may use the server
  uint64_t turn_ = 0;   // it numbers the deadlines, so that a late timer is ignored
  bool timed_out_ = false;
  bool reading_ = false;   // the connection waits for more of a request
  bool woken_ = false;     // drain() has ended that wait
  bool fresh_ = true;      // no request has come yet
  bool watching_ = false;  // the connection waits for the client to disconnect
  bool left_ = false;      // the client has disconnected
  bool broken_ = false;    // writing has failed
  bool closed_ = false;
};

}  // namespace walsh
