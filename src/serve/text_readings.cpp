#include "serve/text_readings.h"

#include <algorithm>
#include <new>
#include <utility>

#include "api/embedding.h"
#include "serve/api_error.h"

namespace walsh {
namespace {

// Returns the answer where the scheduler does not accept a text.
ApiError refusal(const Error& error) {
  return error.code() == ErrorCode::limit ? ApiError(429, error.what()) : api_error(error);
}

}  // namespace

class TextReadings::Text : public RequestSink {
 public:
  Text(std::shared_ptr<TextReadings> owner, size_t index)
      : owner_(std::move(owner)), index_(index) {}

  void read(std::span<const float> values) override { owner_->request_.take(index_, values); }
  bool chosen(const ScoredToken&) override { return false; }
  void ended(const RequestEnd& end) override {
    const Error cancelled(ErrorCode::interrupted, "text", "cancelled");
    leave(end, end.reason == StopReason::callback ? &cancelled : nullptr);
  }
  void failed(const Error& error, const RequestEnd& end) override { leave(end, &error); }

 private:
  // Ends the text. The owner has the last word, and is not needed afterwards.
  void leave(const RequestEnd& end, const Error* error) {
    if (const auto owner = std::exchange(owner_, nullptr)) owner->ended(end, error);
  }

  std::shared_ptr<TextReadings> owner_;
  const size_t index_;
};

TextReadings::TextReadings(Request request, Scheduler& scheduler, Metrics& metrics,
                           std::shared_ptr<HttpReply> reply, std::shared_ptr<RequestRecord> record)
    : request_(std::move(request)),
      scheduler_(scheduler),
      metrics_(metrics),
      reply_(std::move(reply)),
      record_(std::move(record)),
      together_(static_cast<size_t>(std::max<int64_t>(1, scheduler.slots()))) {}

void TextReadings::start() {
  {
    const std::lock_guard lock(mutex_);
    try {
      add_more();
    } catch (const Error& e) {
      answered_ = true;
      cancel();
      throw refusal(e);
    }
  }
  // The mutex is free here, because a client that has left already is reported at once.
  reply_->on_gone([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard guard(self->mutex_);
    self->left_ = true;
    self->cancel();
  });
}

// Adds texts to the scheduler. Throws the scheduler's error unless a text of this request is still
// there, after which more are added.
void TextReadings::add_more() {
  while (ids_.size() < request_.prompts.size() && ids_.size() - ended_ < together_) {
    const size_t index = ids_.size();
    TextRequest text = reading_request(request_.prompts[index], request_.reading);
    text.owner = request_.owner;
    try {
      ids_.push_back(
          scheduler_.add(std::move(text), std::make_shared<Text>(shared_from_this(), index)));
    } catch (const Error& e) {
      if (e.code() == ErrorCode::limit && ids_.size() > ended_) return;
      throw;
    }
  }
}

void TextReadings::cancel() {
  for (const uint64_t id : ids_)
    scheduler_.cancel(id);
}

void TextReadings::ended(const RequestEnd& end, const Error* error) {
  const std::lock_guard lock(mutex_);
  ++ended_;
  metrics_.ended(end);
  record_->add(end);
  tokens_ += end.prompt_tokens;
  if (answered_) return;
  if (error != nullptr)
    return fail(error->code() == ErrorCode::limit ? ApiError(503, error->what())
                                                  : api_error(*error));
  if (ended_ == request_.prompts.size()) return finish();
  // Texts that a step has just read are not cancelled any more, and no others may follow them.
  if (left_) return fail(api_error(Error(ErrorCode::interrupted, "text", "cancelled")));
  try {
    add_more();
  } catch (const Error& e) {
    return fail(refusal(e));
  }
}

// Sends the error. The other texts need not be read.
void TextReadings::fail(const ApiError& error) {
  answered_ = true;
  cancel();
  reply_->send(error.response());
}

void TextReadings::finish() {
  try {
    HttpResponse response = request_.answer(tokens_);
    answered_ = true;
    reply_->send(std::move(response));
  } catch (const std::bad_alloc&) {
    fail(ApiError(503, "there is not enough memory for this answer"));
  }
}

}  // namespace walsh
