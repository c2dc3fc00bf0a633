#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "io/json.h"
#include "serve/api_error.h"
#include "serve/completion.h"
#include "serve/known_fields.h"
#include "serve/ordered_fields.h"

namespace walsh {
namespace {

std::optional<Reranker> find_reranker(const LoadedModel& model, const ServiceOptions& options) {
  const bool named = Reranker::is_named(options.model_name) || Reranker::is_named(model.path);
  if (!options.reranker && !named) return std::nullopt;
  std::optional<Reranker> reranker = Reranker::of(model);
  if (!reranker && options.reranker)
    throw Error(ErrorCode::usage, "--reranker",
                model.path + " lacks tokens of its prompt: yes, no, <|im_start|> and <|im_end|>");
  return reranker;
}

}  // namespace

Service::Service(const LoadedModel& model, Scheduler& scheduler, ServiceOptions options,
                 ChatPrompt chat, std::shared_ptr<Door> door, std::shared_ptr<Metrics> metrics)
    : model_(model),
      scheduler_(scheduler),
      options_(std::move(options)),
      chat_(std::move(chat)),
      reranker_(find_reranker(model, options_)),
      tokens_(model.tokenizer),
      door_(door ? std::move(door) : std::make_shared<Door>(options_)),
      metrics_(metrics ? std::move(metrics) : std::make_shared<Metrics>()),
      started_(std::time(nullptr)) {}

const std::vector<Route>& Service::routes() {
  static const std::vector<Route> all = {
      {"GET", "/", &Service::page, true},
      {"GET", "/health", &Service::health, true, HttpTurn::at_once},
      {"GET", "/v1/health", &Service::health, true, HttpTurn::at_once},
      {"GET", "/v1/models", &Service::models, false},
      {"GET", "/v1/models/*", &Service::model, false},
      {"POST", "/models/load", &Service::of_several, false},
      {"POST", "/models/unload", &Service::of_several, false},
      {"GET", "/props", &Service::props, false},
      {"GET", "/version", &Service::version, false},
      {"GET", "/openapi.json", &Service::openapi, true},
      {"POST", "/v1/responses", &Service::responses, false},
      {"POST", "/v1/messages", &Service::messages, false},
      {"POST", "/v1/messages/count_tokens", &Service::count_tokens, false, HttpTurn::one_by_one},
      {"POST", "/v1/completions", &Service::completions, false},
      {"POST", "/v1/chat/completions", &Service::chat, false},
      {"POST", "/v1/chat/completions/input_tokens", &Service::chat_tokens, false,
       HttpTurn::one_by_one},
      {"POST", "/v1/embeddings", &Service::embeddings, false},
      {"POST", "/embedding", &Service::llama_embedding, false},
      {"POST", "/api/embed", &Service::ollama_embed, false},
      {"POST", "/api/embeddings", &Service::ollama_embeddings, false},
      {"POST", "/v1/rerank", &Service::rerank, false},
      {"POST", "/v1/reranking", &Service::rerank, false},
      {"POST", "/v2/rerank", &Service::rerank, false},
      {"POST", "/tokenize", &Service::tokenize, false, HttpTurn::one_by_one},
      {"POST", "/detokenize", &Service::detokenize, false, HttpTurn::one_by_one},
      {"POST", "/apply-template", &Service::apply_template, false, HttpTurn::one_by_one},
      {"GET", "/metrics", &Service::metrics, false, HttpTurn::at_once},
      {"POST", "/completion", &Service::llama_completion, false},
      {"POST", "/infill", &Service::llama_infill, false},
      {"GET", "/slots", &Service::slots, false},
      {"POST", "/slots/*", &Service::act_on_slot, false},
      {"POST", "/api/chat", &Service::ollama_chat, false},
      {"POST", "/api/generate", &Service::ollama_generate, false},
      {"GET", "/api/tags", &Service::ollama_tags, false},
      {"GET", "/api/ps", &Service::ollama_running, false},
      {"POST", "/api/show", &Service::ollama_show, false},
      {"GET", "/api/version", &Service::ollama_version, false},
  };
  return all;
}

// Returns the owner of a request's cached prefixes: its key and, as in vLLM, the salt that it
// names. Requests of different owners share neither prefixes nor compiled grammars, because the
// number of cached tokens and the times would tell one how much of a guess is a prompt or a schema
// of the other.
std::string Service::owner_of(const HttpRequest& request, const OrderedJson& body) const {
  std::string salt;
  if (const OrderedJson* given = find_value(body, "cache_salt")) {
    if (!given->is_string() || *given == "") refuse_value("cache_salt", "a non-empty string");
    salt = given->get<std::string>();
  }
  return door_->key_name(request) + " " + salt;
}

void Service::handle(HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  door_->let_in(request, reply, [&](const Route& route, const std::shared_ptr<HttpReply>& counted) {
    answer(route, request, counted);
  });
}

void Service::health(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  door_->refuse_if_draining();
  reply->send(json_response({{"status", "ok"}}));
}

void Service::start(CompletionRequest wanted, const HttpRequest& request,
                    const std::shared_ptr<HttpReply>& reply) {
  door_->refuse_if_draining();
  if (wanted.thinking) {
    wanted.thinking->bytes = [this](int32_t token) { return tokens_.bytes(token); };
    wanted.text.thinking = std::make_shared<ThinkingLimit>(std::move(*wanted.thinking));
  }
  const auto completion =
      std::make_shared<Completion>(std::move(wanted), model_.tokenizer, tokens_, *metrics_, reply,
                                   request.record, options_.model_name);
  completion->start(scheduler_);
}

// The limits allow for what a normalizer may remove from short texts.
PromptLimits Service::prompt_limits() const {
  constexpr uint64_t kLeastBytes = uint64_t{64} << 10;
  const auto positions = static_cast<uint64_t>(scheduler_.positions());
  return {scheduler_.positions(), std::max(kLeastBytes, positions * tokens_.longest()),
          options_.shifts, options_.keep, options_.reasoning_budget};
}

OrderedJson Service::read_body(const HttpRequest& request) {
  OrderedJson body = parse_ordered_body(request.body);
  metrics_->ignored(ignored_fields(request.path, body));
  return body;
}

void Service::completions(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  auto completion =
      parse_completion(body, model_, prompt_limits(), options_.sampling, owner_of(request, body));
  // Prompts that are texts begin with BOS: a client that makes the tokens itself may leave it out.
  const std::optional<int32_t> bos = model_.tokenizer.added_bos();
  request.record->lacks_bos =
      bos && std::any_of(completion.prompts.begin(), completion.prompts.end(),
                         [&](const auto& p) { return p.front() != *bos; });
  start(std::move(completion), request, reply);
}

void Service::chat(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  answer_chat(request, read_body(request), reply);
}

void Service::answer_chat(const HttpRequest& request, OrderedJson body,
                          const std::shared_ptr<HttpReply>& reply) {
  const ChatText text = chat_prompt(body);
  const std::string owner = owner_of(request, body);
  auto completion =
      parse_chat(body, model_, prompt_limits(), options_.sampling, owner, text.prompt);
  show_images(text, owner, completion.prompts.front(), completion.text.images);
  if (!text.images.empty())
    check_prompt_tokens(completion.prompts.front(), scheduler_.positions(), "the prompt",
                        "messages");
  start(std::move(completion), request, reply);
}

void Service::metrics(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  HttpResponse response;
  response.type = "text/plain; version=0.0.4";
  const ModelMetrics own = {"", metrics_.get(), scheduler_.counts()};
  response.body = metrics_text({&own, 1}, door_->responses());
  reply->send(std::move(response));
}

}  // namespace walsh
