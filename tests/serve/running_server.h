// Runs a server in its own thread, with handlers for it, for tests.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "serve/client.h"
#include "serve/http.h"

namespace walsh::test {

inline HttpResponse error_text(int status, const std::string& message, const HttpRequest& request) {
  return {status,
          "text/plain",
          std::to_string(status) + " " + message,
          {{"X-Path", request.path}, {"X-Peer", request.peer}}};
}

inline HttpOptions any_port() {
  HttpOptions options;
  options.port = 0;
  return options;
}

class RunningServer {
 public:
  RunningServer(const HttpOptions& options, HttpHandler handler, HttpTurnOf turn_of = nullptr,
                HttpAdmit admit = nullptr)
      : server_(std::make_unique<HttpServer>(options, std::move(handler), error_text,
                                             std::move(turn_of), std::move(admit))),
        port_(server_->port()),
        thread_([this] {
          server_->run();
          returned_ = true;
        }) {
    // This waits, so that the destructor of the server cannot come before run().
    eventually([&] { return Client(port_).ask("GET / HTTP/1.0\r\n\r\n").status != 0; });
    eventually([&] { return server_->open_connections() == 0; });
  }
  ~RunningServer() { stop(); }

  uint16_t port() const { return port_; }
  HttpServer& operator*() { return *server_; }
  HttpServer* operator->() { return server_.get(); }
  bool returned() const { return returned_; }
  bool idle() {
    return eventually([&] { return server_->open_connections() == 0; });
  }
  // Waits for run() to return after shut_down().
  void join() { thread_.join(); }
  // Destroys the server in any state.
  void stop() {
    server_.reset();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::unique_ptr<HttpServer> server_;
  uint16_t port_;
  std::atomic<bool> returned_{false};
  std::thread thread_;
};

// Keeps replies to /wait for the test to answer, and says of every other request what it is.
class Desk {
 public:
  HttpHandler handler() {
    return [this](const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
      if (request.path != "/wait" && request.path != "/events") {
        ++answered;
        reply->send({200,
                     "text/plain",
                     request.method + " " + request.path + "?" + request.query + " " + request.body,
                     {}});
        return;
      }
      reply->on_gone([this] { ++gone; });
      if (request.path == "/events") reply->start_events({200, kEventStream, "", {}});
      const std::lock_guard lock(mutex_);
      waiting_.push_back(reply);
    };
  }
  // Returns the replies that have come in, `count` at least.
  std::vector<std::shared_ptr<HttpReply>> take(size_t count) {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return waiting_.size() >= count;
    }));
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }

  std::atomic<int> gone{0}, answered{0};

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpReply>> waiting_;
};

}  // namespace walsh::test
