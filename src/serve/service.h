// The endpoints: who may ask, what is asked, and what is answered.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/load.h"
#include "schedule/scheduler.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/completion_request.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/request_log.h"
#include "serve/token_texts.h"

namespace walsh {

struct ServiceOptions {
  std::string model_name;             // as clients call it
  std::vector<std::string> api_keys;  // none: nobody needs one
  std::vector<std::string> hosts;     // names in Host besides localhost and addresses
  std::vector<std::string> origins;   // that browsers may send requests from; "*": all
  LogFormat log = LogFormat::off;     // of a line for each request, on standard error
  // How texts are sampled where a request says nothing; what this leaves open the model says.
  GenerationOptions sampling = {};
};

HttpResponse json_response(const Json& body);

class Service {
 public:
  // Everything given by reference outlives it. `chat` is null if the model has no chat template.
  Service(const LoadedModel& model, Scheduler& scheduler, ServiceOptions options, ChatPrompt chat);

  // For HttpServer. From any thread.
  HttpAdmission admit(HttpRequest& request);
  void handle(HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  static HttpTurn turn_of(const HttpRequest& request);
  HttpResponse error_body(int status, const std::string& message, const HttpRequest& request);
  // From now on /health answers 503, and nothing new is begun.
  void drain() { draining_ = true; }

 private:
  using Handler = void (Service::*)(const HttpRequest&, const std::shared_ptr<HttpReply>&);
  struct Route {
    const char *method, *path;
    Handler handler;
    bool open;  // without a key
    HttpTurn turn = HttpTurn::handlers;
  };
  static const std::vector<Route>& routes();
  static void set_route(HttpRequest& request);
  static HttpResponse error_for(const HttpRequest& request, const ApiError& error);

  void check_host(const HttpRequest& request) const;
  void check_origin(const HttpRequest& request) const;
  bool allows_origin(std::string_view origin) const;
  // The number of the request's key, from 1; 0: it has none that is valid.
  size_t key_of(const HttpRequest& request) const;
  // Returns the route of the request, null for a preflight. Throws ApiError if the request is not
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
  void apply_template(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void metrics(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void answer_chat(const HttpRequest& request, OrderedJson body,
                   const std::shared_ptr<HttpReply>& reply);
  void version(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void start(CompletionRequest wanted, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  Json describe_model() const;
  // The request's body, an object whose fields are counted where they mean nothing.
  OrderedJson read_body(const HttpRequest& request);
  // Takes the messages out of the body.
  std::string chat_prompt(OrderedJson& body) const;
  PromptLimits prompt_limits() const;

  const LoadedModel& model_;
  Scheduler& scheduler_;
  const ServiceOptions options_;
  const ChatPrompt chat_;
  const TokenTexts tokens_;
  Metrics metrics_;
  RequestLog log_;
  const int64_t started_;
  std::atomic<bool> draining_ = false;
};

}  // namespace walsh
