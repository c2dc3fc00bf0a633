// One request and its answer, between the thread that serves connections and those that answer.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "serve/http.h"

namespace walsh {

// The way into the thread that serves connections, which may have ended.
class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

  // False, and nothing is done, once it is closed.
  template <typename Task>
  bool post(Task&& task) {
    const std::lock_guard lock(mutex_);
    if (!io_) return false;
    boost::asio::post(*io_, std::forward<Task>(task));
    return true;
  }

  void close() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  boost::asio::io_context* io_;
};

// What has been said of the answer so far. Used in the io thread only, and by the last owner after
// that has ended, so that it has no lock. Members of its own must not need the io_context.
struct Exchange {
  std::function<void()> changed;  // set while a connection waits for it
  size_t queue_bytes = 0;         // the most that may be queued
  std::optional<HttpResponse> response;
  bool streaming = false;  // `response` is the head of a stream
  bool begun = false;      // to be written
  bool ended = false;      // by the handler
  bool cut = false;        // no more can be said: close the connection
  bool overflown = false;  // because more was queued than is allowed
  std::string queue;       // of the stream, not yet written
  bool gone = false;       // the client
  bool closed = false;     // the connection is done with it
  std::vector<std::function<void()>> when_gone;

  void send(HttpResponse whole);
  void start_events(HttpResponse head);
  void event(const std::string& text);
  void end();
  // The handler failed: 500 if there is no answer yet, otherwise the stream is cut off.
  void fail(HttpResponse error);
  void on_gone(std::function<void()> call);
  // The client left.
  void leave();
  // The connection is done with it.
  void close();

 private:
  void notify() const {
    if (changed) changed();
  }
};

// What handlers get.
class Reply final : public HttpReply {
 public:
  // `error` makes the answer for a reply that is dropped or a handler that fails.
  using MakeError = std::function<HttpResponse(const std::string& message)>;
  Reply(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Exchange> exchange, MakeError error);
  ~Reply() override;

  void send(HttpResponse response) override;
  void start_events(HttpResponse response) override;
  void event(std::string text) override;
  void end_events() override;
  void on_gone(std::function<void()> gone) override;
  void fail(const std::string& message) noexcept;

 private:
  template <typename Change>
  bool post(Change change);

  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<Exchange> exchange_;
  MakeError error_;
  std::atomic<bool> started_{false}, ended_{false};
};

}  // namespace walsh
