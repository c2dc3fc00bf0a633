// Serves endpoints for the steps before a model: tokenize, detokenize, apply the chat template.
#include <fmt/format.h>

#include <iterator>

#include "base/stop.h"
#include "io/json.h"
#include "serve/known_fields.h"
#include "serve/service.h"
#include "text/utf8.h"

namespace walsh {
namespace {

// A detokenized text has at most this many bytes: a token takes two bytes of a request and may be a
// hundred bytes of text.
constexpr size_t kMostTextBytes = size_t{16} << 20;

// Returns JSON of a token: a string, or a list of bytes if it is not UTF-8, as in llama.cpp.
std::string piece_text(std::string_view bytes) {
  const Json piece =
      is_valid_utf8(bytes) ? Json(bytes) : Json(std::vector<uint8_t>(bytes.begin(), bytes.end()));
  return piece.dump();
}

}  // namespace

// The answer is written piece by piece, without an object per token, because each byte of the
// request may be a token.
void Service::tokenize(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const Json body = parse_body(request.body);
  metrics_->ignored(ignored_fields(request.path, body));
  const Fields fields(body, "");
  // The field is "content" in llama.cpp and "prompt" in vLLM.
  const auto content = fields.text("content"), prompt = fields.text("prompt");
  if (!content && !prompt) fields.refuse("content", "a string");
  const bool special =
      fields.flag("add_special")
          .value_or(fields.flag("add_special_tokens").value_or(prompt.has_value()));
  const bool pieces = fields.flag("with_pieces").value_or(false);
  const auto ids = model_.tokenizer.encode(content ? *content : *prompt, special);
  HttpResponse response;
  const auto to = std::back_inserter(response.body);
  fmt::format_to(to, "{{\"count\":{},\"max_model_len\":{},\"tokens\":[", ids.size(),
                 scheduler_.positions());
  for (size_t i = 0; i < ids.size(); ++i) {
    check_stop();
    if (i > 0) response.body += ',';
    if (pieces) {
      fmt::format_to(to, "{{\"id\":{},\"piece\":{}}}", ids[i], piece_text(tokens_.bytes(ids[i])));
    } else {
      fmt::format_to(to, "{}", ids[i]);
    }
  }
  response.body += "]}";
  reply->send(std::move(response));
}

void Service::detokenize(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const Json body = parse_body(request.body);
  metrics_->ignored(ignored_fields(request.path, body));
  const Fields fields(body, "");
  const Json* list = fields.find("tokens");
  if (list == nullptr || !list->is_array()) fields.refuse("tokens", "a list of token ids");
  std::vector<int32_t> ids;
  size_t bytes = 0;
  const auto vocab = static_cast<uint64_t>(model_.model.config.vocab);
  for (const Json& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= vocab)
      fields.refuse("tokens", fmt::format("made of token ids below {}", vocab));
    ids.push_back(id.get<int32_t>());
    bytes += tokens_.bytes(ids.back()).size();
  }
  if (bytes > kMostTextBytes)
    throw ApiError(
        400,
        fmt::format("they decode to {} bytes, but at most {} are returned", bytes, kMostTextBytes),
        "tokens");
  const std::string text = model_.tokenizer.decode(ids, false);
  reply->send(json_response({{"content", text}, {"prompt", text}}));
}

// Counts the tokens that the chat template makes of messages, as llama.cpp does.
void Service::chat_tokens(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  OrderedJson body = read_body(request);
  const int64_t count = count_chat(request, body);
  reply->send(json_response({{"object", "response.input_tokens"}, {"input_tokens", count}}));
}

void Service::apply_template(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  OrderedJson body = read_body(request);
  reply->send(json_response({{"prompt", chat_prompt(body).prompt}}));
}

}  // namespace walsh
