// Endpoints that are chats in another form.
#include "io/json.h"
#include "serve/api_error.h"
#include "serve/messages_api.h"
#include "serve/responses_api.h"
#include "serve/service.h"
#include "serve/translated_reply.h"

namespace walsh {
namespace {

HttpRequest chat_request(const HttpRequest& request, const OrderedJson& chat) {
  HttpRequest result = request;
  result.path = "/v1/chat/completions";
  result.body = chat.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return result;
}

}  // namespace

void Service::responses(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  const HttpRequest inner = chat_request(request, chat_of_responses(body));
  try {
    chat(inner, responses_reply(reply, body));
  } catch (const ApiError& e) {
    throw renamed(e, responses_names());
  }
}

void Service::messages(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const HttpRequest inner = chat_request(request, chat_of_messages(read_body(request)));
  try {
    chat(inner, messages_reply(reply));
  } catch (const ApiError& e) {
    throw renamed(e, messages_names());
  }
}

void Service::count_tokens(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson chat = chat_of_messages(read_body(request), true);
  const std::string prompt = chat_prompt(chat);
  const size_t count = model_.tokenizer.encode(prompt, false).size();
  reply->send(json_response({{"input_tokens", count}}));
}

}  // namespace walsh
