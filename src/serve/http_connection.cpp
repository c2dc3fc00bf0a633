#include "serve/http_connection.h"

#include <poll.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "walsh/error.h"

namespace walsh {
namespace {

namespace net = boost::asio;
using net::redirect_error;
using net::use_awaitable;
using net::ip::tcp;

// A refused client may keep sending this long. Closing the connection at once would lose the
// answer.
constexpr auto linger_time = std::chrono::seconds(1);
// Such an interval lies between two checks for a disconnected client that has pipelined further
// requests.
constexpr auto watch_interval = std::chrono::milliseconds(50);

HttpConnection::Clock::duration seconds(double value) {
  return std::chrono::duration_cast<HttpConnection::Clock::duration>(
      std::chrono::duration<double>(value));
}

enum class Peer { quiet, sent, left, reset };

Peer look_at(int socket) {
  pollfd query{socket, POLLIN | POLLRDHUP, 0};
  if (::poll(&query, 1, 0) <= 0) return Peer::quiet;
  if (query.revents & (POLLERR | POLLHUP | POLLNVAL)) return Peer::reset;
  if (query.revents & POLLRDHUP) return Peer::left;
  return query.revents & POLLIN ? Peer::sent : Peer::quiet;
}

}  // namespace

HttpResponse HttpContext::error(int status, const std::string& message,
                                const HttpRequest& request) const {
  try {
    HttpResponse response = error_body(status, message, request);
    response.status = status;
    return response;
  } catch (...) {
    return {status, "text/plain", message + "\n", {}};
  }
}

HttpConnection::HttpConnection(HttpContext& context, tcp::socket socket, uint64_t id)
    : context_(context),
      socket_(std::move(socket)),
      deadline_(context.io),
      change_(context.io),
      watch_pause_(context.io),
      id_(id) {
  Error ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(tcp::no_delay(true), ignored);
  Error error;
  const auto endpoint = socket_.remote_endpoint(error);
  if (!error) peer_ = endpoint.address().to_string();
}

HttpConnection::~HttpConnection() {
  if (exchange_) exchange_->close();
}

// Deadlines ---------------------------------------------------------------------------------------

void HttpConnection::arm(Clock::time_point deadline) {
  timed_out_ = false;
  deadline_.expires_at(deadline);
  deadline_.async_wait([self = shared_from_this(), turn = ++turn_](Error error) {
    if (error || turn != self->turn_) return;
    self->timed_out_ = true;
    Error ignored;
    self->socket_.cancel(ignored);
  });
}

void HttpConnection::disarm() {
  ++turn_;
  deadline_.cancel();
}

// Reading -----------------------------------------------------------------------------------------

// Appends to received_. Returns false at the end of the client's data, after an error or the
// deadline, and when the server shuts down.
HttpConnection::Awaitable<bool> HttpConnection::read_more(Clock::time_point deadline) {
  Error error;
  size_t count = 0;
  do {
    if (closed_) co_return false;
    arm(deadline);
    // Waiting first and then reading into the shared buffer spares a buffer per idle connection.
    co_await socket_.async_wait(tcp::socket::wait_read, redirect_error(use_awaitable, error));
    disarm();
    if (error || closed_) co_return false;
    count = socket_.read_some(net::buffer(context_.scratch), error);
  } while (error == net::error::would_block);
  if (error) co_return false;
  received_.append(context_.scratch.data(), count);
  co_return true;
}

// Asks whether the request with this header may send its body.
void HttpConnection::admit(HttpParser& parser) {
  if (context_.draining) return parser.refuse(503, "the server is shutting down");
  HttpRequest& request = parser.request();
  request.peer = peer_;
  HttpAdmission admission;
  if (context_.admit) admission = context_.admit(request);
  refusal_ = std::move(admission.refusal);
  if (refusal_ || !admission.known || known_) return;
  known_ = context_.acquaint(id_);
  if (!known_) parser.refuse(503, "too many connections");
}

// Reads until the request is complete or refused. If it is neither, the connection is to be closed.
HttpConnection::Awaitable<> HttpConnection::read_request(HttpParser& parser, HeldBytes& held) {
  const HttpOptions& options = context_.options;
  bool begun = false, in_body = false, admitted = false;
  const bool patient = known_ && !fresh_;
  auto deadline = Clock::now() + seconds(patient ? options.idle_seconds : options.header_seconds);
  while (true) {
    if (!received_.empty()) received_.erase(0, parser.put(received_));
    if (parser.header_done() && !admitted && !parser.refused()) {
      admitted = true;
      admit(parser);
    }
    if (parser.header_done() && !held.has_room(parser.request().body.size())) {
      parser.refuse(503, "too much is being sent at once: try again later");
      parser.request().body = {};
    }
    if (parser.done() || parser.refused() || refusal_) co_return;
    if (!begun && parser.begun()) {
      begun = true;
      deadline = Clock::now() + seconds(options.header_seconds);
    }
    if (parser.header_done() && !in_body) {
      in_body = true;
      deadline = Clock::now() + seconds(options.body_seconds);
      if (parser.expects_continue() && received_.empty() && parser.request().body.empty()) {
        if (!co_await write("HTTP/1.1 100 Continue\r\n\r\n")) co_return;
      }
    }
    // A new client, or one that has begun a request, is told about the shutdown.
    if (context_.draining && (in_body || context_.ending || (!begun && !fresh_))) {
      if (begun) parser.refuse(503, "the server is shutting down");
      co_return;
    }
    reading_ = true;
    const bool more = co_await read_more(deadline);
    reading_ = false;
    if (!more) {
      if (timed_out_ && begun) {
        parser.refuse(408, in_body ? "the body took too long" : "the header took too long");
      }
      if (!std::exchange(woken_, false) || timed_out_ || closed_) co_return;
    }
  }
}

// Writing -----------------------------------------------------------------------------------------

HttpConnection::Awaitable<bool> HttpConnection::write(std::string text) {
  size_t done = 0;
  while (done < text.size()) {
    if (closed_ || broken_) co_return false;
    arm(Clock::now() + seconds(context_.options.write_seconds));
    Error error;
    done += co_await socket_.async_write_some(net::buffer(text.data() + done, text.size() - done),
                                              redirect_error(use_awaitable, error));
    disarm();
    if (error) {
      broken_ = true;
      if (timed_out_) reset();
      co_return false;
    }
  }
  co_return true;
}

// Sends a refusal and returns whether the connection can be used for another request.
HttpConnection::Awaitable<bool> HttpConnection::refuse(const HttpResponse& response, bool head,
                                                       bool keep_alive) {
  std::string text = response_head(response, {HttpFraming::Body::length, keep_alive});
  if (!head) text += response.body;
  co_return co_await write(std::move(text)) && keep_alive;
}

// Closes our side and keeps reading for a while.
HttpConnection::Awaitable<> HttpConnection::linger() {
  Error error;
  if (!closed_ && !broken_) socket_.shutdown(tcp::socket::shutdown_send, error);
  const auto deadline = Clock::now() + linger_time;
  while (!closed_ && !broken_ && !error && Clock::now() < deadline) {
    received_.clear();
    if (!co_await read_more(deadline)) break;
  }
  abort();
}

// Answering ---------------------------------------------------------------------------------------

void HttpConnection::start_handler(HttpParser& parser, std::shared_ptr<HeldBytes> held) {
  auto request = std::make_shared<HttpRequest>(std::move(parser.request()));
  about_ = {};
  about_.method = request->method;
  about_.path = request->path;
  exchange_ = std::make_shared<Exchange>();
  exchange_->queue_bytes = context_.options.queue_bytes;
  exchange_->gone = left_;
  exchange_->changed = [this] {
    change_.cancel();
    if (exchange_->overflown) reset();
  };
  auto reply =
      std::make_shared<Reply>(context_.mailbox, exchange_,
                              [&context = context_, about = about_](const std::string& message) {
                                return context.error(500, message, about);
                              });
  auto handle = [&handler = context_.handler, held = std::move(held), request,
                 reply = std::move(reply)] {
    try {
      handler(*request, reply);
    } catch (const walsh::Error& error) {
      reply->fail(error.what());
    } catch (...) {
      reply->fail("internal error");
    }
  };
  const HttpTurn turn = context_.turn_of ? context_.turn_of(*request) : HttpTurn::handlers;
  if (turn == HttpTurn::at_once) return handle();
  net::post(turn == HttpTurn::one_by_one    ? *context_.one_by_one
            : turn == HttpTurn::long_bodies ? *context_.long_bodies
                                            : *context_.handlers,
            std::move(handle));
}

bool HttpConnection::answerable() const {
  return !closed_ && !broken_ && !exchange_->cut;
}

HttpConnection::Awaitable<> HttpConnection::wait_for_change(Clock::time_point until) {
  Error ignored;
  change_.expires_at(until);
  co_await change_.async_wait(redirect_error(use_awaitable, ignored));
}

// Answers the request and returns whether the connection can be used for another one.
HttpConnection::Awaitable<bool> HttpConnection::answer(bool http10, bool head, bool keep_alive) {
  watch();
  while (answerable() && !exchange_->response) {
    co_await wait_for_change(Clock::time_point::max());
  }
  if (!answerable()) co_return false;
  exchange_->begun = true;
  HeldBytes held(context_.answer_bytes, context_.options.answer_bytes);
  if (!held.has_room(exchange_->response->body.size()))
    exchange_->response = context_.error(503, "too many answers wait to be read", about_);
  HttpFraming framing;
  if (exchange_->streaming) {
    // The client is gone, and the handler was notified.
    if (left_) co_return false;
    framing.body = http10 ? HttpFraming::Body::until_close : HttpFraming::Body::chunked;
    exchange_->response->headers["Cache-Control"] = "no-store";
    exchange_->response->body.clear();
  }
  framing.keep_alive =
      keep_alive && !context_.draining && framing.body != HttpFraming::Body::until_close;
  std::string text = response_head(*exchange_->response, framing);
  const bool has_body = !head && status_has_body(exchange_->response->status);
  if (has_body) text += std::exchange(exchange_->response->body, {});
  bool written = co_await write(std::move(text));
  if (written && exchange_->streaming && has_body) written = co_await stream(framing.body);
  co_return written&& framing.keep_alive&& answerable();
}

HttpConnection::Awaitable<bool> HttpConnection::stream(HttpFraming::Body body) {
  const bool chunked = body == HttpFraming::Body::chunked;
  const bool events = exchange_->response->type == kEventStream;
  while (answerable() && !left_) {
    std::string text = std::exchange(exchange_->queue, {});
    if (text.empty() && exchange_->ended) {
      if (chunked) text = chunk("");
      co_return co_await write(std::move(text));
    }
    if (text.empty()) {
      const auto ping = events ? Clock::now() + seconds(context_.options.ping_seconds)
                               : Clock::time_point::max();
      co_await wait_for_change(ping);
      if (!exchange_->queue.empty() || exchange_->ended || Clock::now() < ping) continue;
      text = ": ping\n\n";
    }
    if (chunked) text = chunk(text);
    HeldBytes held(context_.answer_bytes, context_.options.answer_bytes);
    if (!held.has_room(text.size())) reset();
    if (!co_await write(std::move(text))) break;
  }
  broken_ = true;  // without the last chunk the client sees that the stream is incomplete
  co_return false;
}

// Waits for the client to disconnect while it is being answered. There is at most one such wait; it
// may last into the next exchange.
void HttpConnection::watch() {
  if (watching_ || !exchange_ || left_ || closed_) return;
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](Error) {
    self->watching_ = false;
    self->look();
  });
}

void HttpConnection::look() {
  if (!exchange_ || closed_ || left_) return;
  const Peer peer = look_at(socket_.native_handle());
  if (peer == Peer::quiet) return watch();
  if (peer == Peer::sent) {
    // The next request has arrived already, so a wait would end at once.
    watching_ = true;
    watch_pause_.expires_after(watch_interval);
    watch_pause_.async_wait([self = shared_from_this()](Error) {
      self->watching_ = false;
      self->look();
    });
    return;
  }
  left_ = true;
  if (!exchange_->ended) exchange_->leave();
  if (peer == Peer::reset || exchange_->streaming) {
    abort();
  } else {
    change_.cancel();
  }
}

// The whole ---------------------------------------------------------------------------------------

HttpConnection::Awaitable<bool> HttpConnection::serve_request(HttpParser& parser,
                                                              std::shared_ptr<HeldBytes> held) {
  struct Answering {
    explicit Answering(HttpContext& shared) : context(shared) { ++context.answering; }
    ~Answering() {
      --context.answering;
      if (context.answered) context.answered();
    }
    HttpContext& context;
  } const answering(context_);
  const bool head = parser.request().method == "HEAD";
  const bool keep_alive = parser.keep_alive(), http10 = parser.http10();
  start_handler(parser, std::move(held));
  const bool goes_on = co_await answer(http10, head, keep_alive);
  exchange_->close();
  exchange_.reset();
  co_return goes_on;
}

HttpConnection::Awaitable<> HttpConnection::serve() {
  bool keep_alive = true;
  while (keep_alive && !closed_) {
    HttpParser parser(context_.options);
    auto held = std::make_shared<HeldBytes>(context_.held_bytes, context_.options.held_bytes);
    refusal_.reset();
    co_await read_request(parser, *held);
    fresh_ = false;
    if (closed_ || broken_) break;
    const bool head = parser.request().method == "HEAD";
    if (parser.refused()) {
      parser.request().peer = peer_;
      const HttpResponse response =
          context_.error(parser.refused(), parser.reason(), parser.request());
      keep_alive = co_await refuse(response, head, false);
    } else if (refusal_) {  // the refused request's body, if any, was not read
      keep_alive = co_await refuse(*refusal_, head, parser.done() && parser.keep_alive());
    } else if (!parser.done()) {
      // The connection is idle or the client gone, so nothing can be lost.
      co_return abort();
    } else {
      keep_alive = co_await serve_request(parser, std::move(held));
    }
    if (received_.empty()) received_.shrink_to_fit();
  }
  co_await linger();
}

void HttpConnection::drain() {
  Error ignored;
  if (!reading_) return;
  woken_ = true;
  socket_.cancel(ignored);
}

// Closes the connection without delivering the bytes in the kernel's buffer.
void HttpConnection::reset() {
  Error ignored;
  if (!closed_) socket_.set_option(net::socket_base::linger(true, 0), ignored);
  abort();
}

void HttpConnection::abort() {
  if (closed_) return;
  closed_ = true;
  Error ignored;
  socket_.close(ignored);
  deadline_.cancel();
  change_.cancel();
  watch_pause_.cancel();
  if (exchange_ && !exchange_->ended) exchange_->leave();
}

}  // namespace walsh
