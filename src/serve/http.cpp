#include "serve/http.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "serve/http_connection.h"
#include "walsh/error.h"

namespace walsh {
namespace {

namespace net = boost::asio;
using boost::system::error_code;
using net::redirect_error;
using net::use_awaitable;
using net::ip::tcp;

// The server waits this long after the system refused a connection, for example for want of
// descriptors.
constexpr auto accept_pause = std::chrono::milliseconds(50);

void check(const HttpOptions& options) {
  const auto positive = [](const char* name, double value) {
    if (!(value > 0 && value < 1e9)) {
      throw Error(ErrorCode::usage, name, fmt::format("{} is not a positive number", value));
    }
  };
  if (options.host.empty()) throw Error(ErrorCode::usage, "host", "is empty");
  positive("threads", options.threads);
  positive("connections", static_cast<double>(options.connections));
  positive("header bytes", options.header_bytes);
  positive("header fields", static_cast<double>(options.header_fields));
  positive("header seconds", options.header_seconds);
  positive("body seconds", options.body_seconds);
  positive("write seconds", options.write_seconds);
  positive("idle seconds", options.idle_seconds);
  positive("ping seconds", options.ping_seconds);
}

std::string address_of(const HttpOptions& options) {
  const bool v6 = options.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", options.host, v6 ? "]" : "", options.port);
}

tcp::acceptor listen(net::io_context& io, const HttpOptions& options) {
  error_code error;
  tcp::acceptor acceptor(io);
  const auto found =
      tcp::resolver(io).resolve(options.host, std::to_string(options.port),
                                tcp::resolver::passive | tcp::resolver::numeric_service, error);
  for (const auto& entry : found) {
    acceptor.close(error);
    if (acceptor.open(entry.endpoint().protocol(), error)) continue;
    if (acceptor.set_option(tcp::acceptor::reuse_address(true), error)) continue;
    if (acceptor.bind(entry.endpoint(), error)) continue;
    if (!acceptor.listen(tcp::acceptor::max_listen_connections, error)) return acceptor;
  }
  throw Error(ErrorCode::io, address_of(options), "cannot listen: " + error.message());
}

// Lowers the calling thread's priority (per thread on Linux) below that of the process, so that
// slow requests do not slow down the model.
void lower_priority() {
  constexpr int kSteps = 10, kLowest = 19;
  const auto thread = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, thread,
                std::min(kLowest, ::getpriority(PRIO_PROCESS, thread) + kSteps));
}

// Starts the threads for handlers.
std::unique_ptr<net::thread_pool> start_threads(int count) try {
  return std::make_unique<net::thread_pool>(count);
} catch (const boost::system::system_error& error) {
  throw Error(ErrorCode::limit, "threads", fmt::format("cannot start {}: {}", count, error.what()));
}

}  // namespace

struct HttpServer::Impl {
  using Clock = HttpConnection::Clock;
  // The oldest one comes first.
  using Connections = std::map<uint64_t, std::shared_ptr<HttpConnection>>;

  Impl(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body,
       HttpTurnOf turn_of, HttpAdmit admit)
      : context(options, std::move(handler), std::move(error_body), std::move(turn_of),
                std::move(admit)),
        acceptor(listen(context.io, options)),
        port(acceptor.local_endpoint().port()),
        pause(context.io),
        drain_end(context.io),
        handlers(start_threads(options.threads)),
        one_by_one(start_threads(1)),
        long_bodies(start_threads(1)) {
    context.handlers = handlers.get();
    context.one_by_one = one_by_one.get();
    context.long_bodies = long_bodies.get();
    for (net::thread_pool* slow : {one_by_one.get(), long_bodies.get()})
      net::post(*slow, lower_priority);
    context.acquaint = [this](uint64_t connection) { return acquaint(connection); };
    context.answered = [this] { end_if_idle(); };
  }

  ~Impl() { context.answered = nullptr; }

  void run();
  void start_accepting();
  net::awaitable<void> accept();
  void start(tcp::socket socket);
  bool drop_stranger();
  bool acquaint(uint64_t connection);
  void ended(uint64_t connection);
  void shut_down(Clock::time_point end);
  void end_if_idle();

  HttpContext context;
  tcp::acceptor acceptor;
  const uint16_t port;
  net::steady_timer pause, drain_end;
  std::optional<Clock::time_point> end;
  Connections strangers, known;
  uint64_t next_id = 1;
  std::atomic<int64_t> open{0};

  std::mutex mutex;
  std::condition_variable returned;
  bool running = false;

  std::unique_ptr<net::thread_pool> handlers, one_by_one, long_bodies;
};

void HttpServer::Impl::start_accepting() {
  net::co_spawn(context.io, accept(), [this](std::exception_ptr failed) {
    if (failed && !context.ending) start_accepting();  // there was no memory for a connection
  });
}

net::awaitable<void> HttpServer::Impl::accept() {
  while (!context.ending) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(redirect_error(use_awaitable, error));
    if (context.ending) break;
    if (!error) {
      start(std::move(socket));
    } else if (error == net::error::no_descriptors && drop_stranger()) {
      continue;
    } else if (error != net::error::connection_aborted) {
      pause.expires_after(accept_pause);
      co_await pause.async_wait(redirect_error(use_awaitable, error));
    }
  }
}

// Begins to serve a connection. A new one always gets a chance: the oldest one that is not admitted
// yet is closed for it, so that no number of such connections keeps others out.
void HttpServer::Impl::start(tcp::socket socket) {
  if (static_cast<int64_t>(strangers.size()) >= context.options.connections) drop_stranger();
  const uint64_t id = next_id++;
  auto connection = std::make_shared<HttpConnection>(context, std::move(socket), id);
  strangers.emplace(id, connection);
  open = static_cast<int64_t>(strangers.size() + known.size());
  try {
    // An exception, such as for lack of memory, closes only this connection.
    net::co_spawn(context.io, connection->serve(),
                  [this, connection, id](const std::exception_ptr&) {
                    connection->abort();
                    ended(id);
                  });
  } catch (...) {
    ended(id);
    throw;
  }
}

bool HttpServer::Impl::drop_stranger() {
  if (strangers.empty()) return false;
  const auto oldest = strangers.begin()->second;
  strangers.erase(strangers.begin());
  oldest->abort();
  return true;
}

// Counts the connection as one of an admitted client. Returns false if there are too many.
bool HttpServer::Impl::acquaint(uint64_t connection) {
  if (static_cast<int64_t>(known.size()) >= context.options.connections) return false;
  const auto place = strangers.find(connection);
  if (place == strangers.end()) return false;  // it was closed for a newer one
  known.insert(strangers.extract(place));
  return true;
}

void HttpServer::Impl::ended(uint64_t connection) {
  strangers.erase(connection);
  known.erase(connection);
  open = static_cast<int64_t>(strangers.size() + known.size());
  end_if_idle();
}

// Ends the server if it is idle, because nothing more is sent after the last answer.
void HttpServer::Impl::end_if_idle() {
  if (!context.draining || context.answering > 0) return;
  if (!context.ending) {
    context.ending = true;
    error_code ignored;
    acceptor.close(ignored);
    pause.cancel();
    for (const Connections* group : {&strangers, &known})
      for (const auto& [id, connection] : *group)
        connection->drain();
  }
  if (strangers.empty() && known.empty()) drain_end.cancel();
}

void HttpServer::Impl::shut_down(Clock::time_point when) {
  if (end && *end <= when) return;
  end = when;
  if (!context.draining) {
    context.draining = true;
    for (const Connections* group : {&strangers, &known})
      for (const auto& [id, connection] : *group)
        connection->drain();
  }
  drain_end.expires_at(when);
  drain_end.async_wait([this](error_code error) {
    if (error) return;
    context.ending = true;
    acceptor.close(error);
    pause.cancel();
    for (const Connections* group : {&strangers, &known})
      for (const auto& [id, connection] : *group)
        connection->abort();
  });
  end_if_idle();
}

void HttpServer::Impl::run() {
  start_accepting();
  while (true) {
    try {
      context.io.run();
      break;
    } catch (...) {
      // This is for lack of memory: the operation is lost, and the connection's deadline closes it.
    }
  }
  // Replies that are still held find the mailbox closed. Tasks posted before that run now, so that
  // callers that wait for the client's disconnection are notified.
  context.mailbox->close();
  context.io.restart();
  context.io.poll();
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler, HttpErrorBody error_body,
                       HttpTurnOf turn_of, HttpAdmit admit) {
  check(options);
  impl_ = std::make_unique<Impl>(options, std::move(handler), std::move(error_body),
                                 std::move(turn_of), std::move(admit));
}

HttpServer::~HttpServer() {
  shut_down(0);
  std::unique_lock lock(impl_->mutex);
  impl_->returned.wait(lock, [&] { return !impl_->running; });
  lock.unlock();
  impl_->context.mailbox->close();
  for (net::thread_pool* threads :
       {impl_->handlers.get(), impl_->one_by_one.get(), impl_->long_bodies.get()}) {
    threads->stop();
    threads->join();
  }
}

uint16_t HttpServer::port() const {
  return impl_->port;
}
int64_t HttpServer::open_connections() const {
  return impl_->open;
}

void HttpServer::run() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->running = true;
  }
  impl_->run();
  const std::lock_guard lock(impl_->mutex);
  impl_->running = false;
  impl_->returned.notify_all();
}

void HttpServer::shut_down(double drain_seconds) {
  // The clock would overflow beyond about a year.
  const std::chrono::duration<double> drain(drain_seconds > 0 ? std::min(drain_seconds, 3e7) : 0.0);
  const auto end = Impl::Clock::now() + std::chrono::duration_cast<Impl::Clock::duration>(drain);
  impl_->context.mailbox->post([impl = impl_.get(), end] { impl->shut_down(end); });
}

}  // namespace walsh
