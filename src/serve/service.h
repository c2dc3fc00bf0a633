// Serves the endpoints: authorization, parsing of requests, answers.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/load.h"
#include "schedule/scheduler.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/completion_request.h"
#include "serve/embeddings_api.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/ollama_api.h"
#include "serve/request_log.h"
#include "serve/token_texts.h"

namespace walsh {

struct ServiceOptions {
  std::string model_name;             // the name that clients use
  std::vector<std::string> api_keys;  // empty: no key is needed
  std::vector<std::string> hosts;     // values of Host accepted besides localhost and IP addresses
  std::vector<std::string> origins;   // origins from which browsers may send requests; "*": all
  LogFormat log = LogFormat::off;     // format of the request log on standard error
  bool reranker = false;  // the model ranks documents whatever its name says (api/reranker.h)
  // Default sampling options; what they leave open the model decides.
  GenerationOptions sampling = {};
};

HttpResponse json_response(const Json& body);

class Service {
 public:
  // The references must outlive this. `chat` is null if the model has no chat template.
  Service(const LoadedModel& model, Scheduler& scheduler, ServiceOptions options, ChatPrompt chat);

  // These are callbacks for HttpServer, and thread-safe.
  HttpAdmission admit(HttpRequest& request);
  void handle(HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  static HttpTurn turn_of(const HttpRequest& request);
  HttpResponse error_body(int status, const std::string& message, const HttpRequest& request);
  // Lets /health answer 503 and refuses new work from now on.
  void drain() { draining_ = true; }

 private:
  using Handler = void (Service::*)(const HttpRequest&, const std::shared_ptr<HttpReply>&);
  struct Route {
    const char *method, *path;
    Handler handler;
    bool open;  // needs no key
    HttpTurn turn = HttpTurn::handlers;
  };
  static const std::vector<Route>& routes();
  static void set_route(HttpRequest& request);
  static HttpResponse error_for(const HttpRequest& request, const ApiError& error);

  void check_host(const HttpRequest& request) const;
  void check_origin(const HttpRequest& request) const;
  bool allows_origin(std::string_view origin) const;
  // Returns the number of the request's key, from 1; 0: it has no valid key.
  size_t key_of(const HttpRequest& request) const;
  // Returns the request's route, null for a preflight. Throws ApiError if the request is not
  // allowed.
  const Route* checked(const HttpRequest& request) const;
  std::string owner_of(const HttpRequest& request, const OrderedJson& body) const;
  HttpResponse preflight(const HttpRequest& request) const;
  void add_origin(const HttpRequest& request, HttpResponse& response) const;
  const Route& route_of(const HttpRequest& request) const;

  void health(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void page(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void props(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void models(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void model(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void completions(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void chat(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void responses(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void messages(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void count_tokens(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void openapi(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void tokenize(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void detokenize(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void chat_tokens(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void apply_template(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void embeddings(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void rerank(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
             EmbeddingsForm form);
  // These answer clients of llama.cpp and Ollama.
  void llama_embedding(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_embeddings(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void llama_completion(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void llama_infill(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void answer_llama(const HttpRequest& request, const OrderedJson& body,
                    const OrderedJson& translated, const std::shared_ptr<HttpReply>& reply);
  void ollama_chat(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_generate(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_tags(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_running(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_show(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void ollama_version(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void answer_ollama(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                     OllamaForm form);
  Json describe_to_ollama() const;
  void metrics(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void answer_chat(const HttpRequest& request, OrderedJson body,
                   const std::shared_ptr<HttpReply>& reply);
  void version(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void start(CompletionRequest wanted, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  void start(TextReadings::Request wanted, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  Json describe_model() const;
  // Parses the body, an object, and counts fields without effect.
  OrderedJson read_body(const HttpRequest& request);
  // Takes the messages out of the body.
  std::string chat_prompt(OrderedJson& body) const;
  PromptLimits prompt_limits() const;

  const LoadedModel& model_;
  Scheduler& scheduler_;
  const ServiceOptions options_;
  const ChatPrompt chat_;
  const std::optional<Reranker> reranker_;
  const TokenTexts tokens_;
  Metrics metrics_;
  RequestLog log_;
  const int64_t started_;
  std::atomic<bool> draining_ = false;
};

}  // namespace walsh
