#include "serve/http_exchange.h"

namespace walsh {

void Exchange::send(HttpResponse whole) {
  if (response || closed) return;
  response = std::move(whole);
  end();
}

void Exchange::start_events(HttpResponse head) {
  if (response || closed) return;
  response = std::move(head);
  streaming = true;
  notify();
}

void Exchange::event(const std::string& text) {
  if (!streaming || ended || cut || gone) return;
  // A single piece may exceed the limit, since the client is not behind if the queue is empty.
  if (!queue.empty() && queue.size() + text.size() > queue_bytes) {
    cut = overflown = true;
    leave();
  } else {
    queue += text;
  }
  notify();
}

void Exchange::end() {
  ended = true;
  when_gone.clear();
  notify();
}

void Exchange::fail(HttpResponse error) {
  if (ended) return;
  if (begun) {
    cut = true;
  } else {
    response = std::move(error);
    streaming = false;
  }
  end();
}

void Exchange::on_gone(std::function<void()> call) {
  if (ended) return;
  when_gone.push_back(std::move(call));
  if (gone) leave();
}

void Exchange::leave() {
  gone = true;
  // A callback may release the last owner of the reply, and with it this object.
  const auto calls = std::exchange(when_gone, {});
  for (const auto& call : calls) {
    try {
      call();
    } catch (...) {  // nobody is left who could be told
    }
  }
}

void Exchange::close() {
  changed = nullptr;
  closed = true;
  if (!ended) leave();
  queue = {};
  response.reset();
}

Reply::Reply(std::shared_ptr<Mailbox> mailbox, std::shared_ptr<Exchange> exchange, MakeError error)
    : mailbox_(std::move(mailbox)), exchange_(std::move(exchange)), error_(std::move(error)) {}

Reply::~Reply() {
  fail("the request was not answered");
}

template <typename Change>
bool Reply::post(Change change) {
  return mailbox_->post([exchange = exchange_, change = std::move(change)]() mutable {
    try {
      change(*exchange);
    } catch (...) {  // memory ran out
      exchange->cut = true;
      exchange->leave();
      if (exchange->changed) exchange->changed();
    }
  });
}

void Reply::send(HttpResponse response) {
  if (started_.exchange(true) || ended_.exchange(true)) return;
  post([response = std::move(response)](Exchange& exchange) mutable {
    exchange.send(std::move(response));
  });
}

void Reply::start_events(HttpResponse response) {
  if (started_.exchange(true)) return;
  post([response = std::move(response)](Exchange& exchange) mutable {
    exchange.start_events(std::move(response));
  });
}

void Reply::event(std::string text) {
  if (!started_ || ended_) return;
  post([text = std::move(text)](Exchange& exchange) { exchange.event(text); });
}

void Reply::end_events() {
  if (!started_ || ended_.exchange(true)) return;
  post([](Exchange& exchange) { exchange.end(); });
}

void Reply::on_gone(std::function<void()> gone) {
  if (ended_) return;
  const bool open = post([gone](Exchange& exchange) { exchange.on_gone(gone); });
  if (!open) gone();
}

void Reply::fail(const std::string& message) noexcept {
  if (ended_.exchange(true)) return;
  started_ = true;
  try {
    post([error = error_, message](Exchange& exchange) { exchange.fail(error(message)); });
  } catch (...) {  // memory ran out: the connection stays open until its server ends
  }
}

}  // namespace walsh
