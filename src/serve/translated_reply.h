// Supports other interfaces than OpenAI's. A request is translated to a chat or a completion, and
// its answer is translated back.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/http.h"

namespace walsh {

// Receives the answer to a chat or a completion, whole or as chunks, and sends the translation.
class TranslatedReply : public HttpReply {
 public:
  // `stream_type` is the type of a streamed answer.
  explicit TranslatedReply(std::shared_ptr<HttpReply> reply,
                           const char* stream_type = kEventStream)
      : reply_(std::move(reply)), stream_type_(stream_type) {}

  void send(HttpResponse response) final;
  void start_events(HttpResponse response) final;
  void event(std::string text) final;
  void end_events() final { reply_->end_events(); }
  void on_gone(std::function<void()> gone) final { reply_->on_gone(std::move(gone)); }

 protected:
  // Translates a whole answer.
  virtual Json whole(const Json& chat) = 0;
  // Translates an error object.
  virtual Json error(const Json& chat) { return chat; }
  // Translates a chunk of the chat, the error that ends it, and its end.
  virtual void chunk(const Json& chat) = 0;
  virtual void broken(const Json& error) = 0;
  virtual void done() = 0;

  // Sends `data` as an event named after its "type".
  void emit(const Json& data);
  // Sends a piece of the stream as it is.
  void emit_text(std::string text) { reply_->event(std::move(text)); }

 private:
  std::shared_ptr<HttpReply> reply_;
  const char* stream_type_;
  bool broken_ = false;
};

// Maps names of a chat's fields to their names in the other interface. Names with a leading dot are
// parts of a path and match anywhere in it.
using FieldNames = std::vector<std::pair<std::string, std::string>>;
// Returns the error of a chat, with the field names that the client used.
ApiError renamed(const ApiError& error, const FieldNames& names);

// Returns the count `key` of a usage, or 0 where there is none.
int64_t count_at(const Json& usage, const char* key);

// Returns the object that the arguments of a call are, or an empty one for a text that was cut off.
Json arguments_object(const std::string& text);

// Returns a fresh id for an answer or a part of it.
std::string new_name(const char* prefix);

}  // namespace walsh
