// Serves the endpoints that are translated to chats.
#include <utility>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/messages_api.h"
#include "serve/responses_api.h"
#include "serve/service.h"
#include "serve/translated_reply.h"

namespace walsh {
namespace {

// Keeps the fields that all interfaces share.
OrderedJson with_salt(OrderedJson chat, const OrderedJson& body) {
  if (body.contains("cache_salt")) chat["cache_salt"] = body["cache_salt"];
  return chat;
}

}  // namespace

void Service::responses(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  OrderedJson chat = with_salt(chat_of_responses(body), body);
  try {
    answer_chat(request, std::move(chat), responses_reply(reply, body));
  } catch (const ApiError& e) {
    throw renamed(e, responses_names());
  }
}

void Service::messages(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  OrderedJson chat = with_salt(chat_of_messages(body), body);
  try {
    answer_chat(request, std::move(chat), messages_reply(reply));
  } catch (const ApiError& e) {
    throw renamed(e, messages_names());
  }
}

void Service::count_tokens(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  OrderedJson chat = chat_of_messages(read_body(request), true);
  reply->send(json_response({{"input_tokens", count_chat(request, chat)}}));
}

}  // namespace walsh
