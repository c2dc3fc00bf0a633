// Other interfaces than OpenAI's chats, in terms of them: a request becomes that of a chat, the
// chat's answer becomes what the client expects.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/http.h"

namespace walsh {

// A reply to a chat that makes another one of it. The answer comes either at once or as chunks.
class TranslatedReply : public HttpReply {
 public:
  explicit TranslatedReply(std::shared_ptr<HttpReply> reply) : reply_(std::move(reply)) {}

  void send(HttpResponse response) final;
  void start_events(HttpResponse response) final { reply_->start_events(std::move(response)); }
  void event(std::string text) final;
  void end_events() final { reply_->end_events(); }
  void on_gone(std::function<void()> gone) final { reply_->on_gone(std::move(gone)); }

 protected:
  // The answer to a chat as that of this interface.
  virtual Json whole(const Json& chat) = 0;
  // The error object of a chat as that of this interface.
  virtual Json error(const Json& chat) { return chat; }
  // A chunk of the chat, the error that breaks it off, and its end.
  virtual void chunk(const Json& chat) = 0;
  virtual void broken(const Json& error) = 0;
  virtual void done() = 0;

  // Sends `data` as an event that has its "type" as its name.
  void emit(const Json& data);

 private:
  std::shared_ptr<HttpReply> reply_;
  bool broken_ = false;
};

// What fields of a chat are called in another interface. Names with a dot in front are parts of a
// path, wherever they stand in it.
using FieldNames = std::vector<std::pair<std::string, std::string>>;
// The error of a chat with the names that the client has used.
ApiError renamed(const ApiError& error, const FieldNames& names);

// A new name for an answer or a part of it.
std::string new_name(const char* prefix);

}  // namespace walsh
