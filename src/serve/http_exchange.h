// Holds one request and its answer, which the thread that serves connections shares with the
// handlers.
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

// Posts tasks to the thread that serves connections, which may have ended.
class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context& io) : io_(&io) {}

  // Returns false, without posting, once it is closed.
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

// Holds the state of an answer. It is used only on the io thread, and by the last owner after that
// thread has ended, so it needs no lock. Its members must not depend on the io_context.
struct Exchange {
  std::function<void()> changed;  // it is set while a connection waits for a change
  size_t queue_bytes = 0;         // the queue has this limit
  std::optional<HttpResponse> response;
  bool streaming = false;  // `response` is the header of a stream
  bool begun = false;      // there is something to write
  bool ended = false;      // the handler has ended the answer
  bool cut = false;        // the answer cannot be completed, so the connection is to be closed
  bool overflown = false;  // it was cut because the queue exceeded its limit
  std::string queue;       // this text of the stream is not written yet
  bool gone = false;       // the client has disconnected
  bool closed = false;     // the connection does not need it any more
  std::vector<std::function<void()>> when_gone;

  void send(HttpResponse whole);
  void start_events(HttpResponse head);
  void event(const std::string& text);
  void end();
  // Ends the answer of a handler that failed. Sends 500 if nothing was sent yet, and otherwise cuts
  // the stream off.
  void fail(HttpResponse error);
  void on_gone(std::function<void()> call);
  // Notes that the client disconnected.
  void leave();
  // Notes that the connection does not need the exchange any more.
  void close();

 private:
  void notify() const {
    if (changed) changed();
  }
};

// This is the HttpReply that handlers receive.
class Reply final : public HttpReply {
 public:
  // Makes the answer for a reply that was dropped or a handler that failed.
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
