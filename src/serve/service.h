// Serves the endpoints of a model: parsing of requests, answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/load.h"
#include "schedule/scheduler.h"
#include "serve/chat_prompt.h"
#include "serve/completion_request.h"
#include "serve/door.h"
#include "serve/embeddings_api.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/ollama_api.h"
#include "serve/routes.h"
#include "serve/token_texts.h"

namespace walsh {

struct ServiceOptions : DoorOptions {
  std::string model_name;  // the name that clients use
  bool reranker = false;   // the model ranks documents whatever its name says (api/reranker.h)
  bool slots = true;       // whether /slots answers
  bool shifts = false;     // TextRequest::shifts and keep, where requests leave them open
  int64_t keep = 0;
  int64_t reasoning_budget = -1;  // tokens that a model may think, at most; -1: any number
  // Default sampling options; what they leave open the model decides.
  GenerationOptions sampling = {};
};

HttpResponse json_response(const Json& body);

class Service {
 public:
  // The references must outlive this. `chat` is null if the model has no chat template. Without a
  // door it makes its own; services that share one share its keys and its log.
  Service(const LoadedModel& model, Scheduler& scheduler, ServiceOptions options, ChatPrompt chat,
          std::shared_ptr<Door> door = nullptr, std::shared_ptr<Metrics> metrics = nullptr);

  // These are callbacks for HttpServer, and thread-safe.
  HttpAdmission admit(HttpRequest& request) { return door_->admit(request); }
  void handle(HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  HttpResponse error_body(int status, const std::string& message, const HttpRequest& request) {
    return door_->error_body(status, message, request);
  }
  // Lets /health answer 503 and refuses new work from now on.
  void drain() { door_->drain(); }

  static const std::vector<Route>& routes();
  // Answers a request that a door has let in.
  void answer(const Route& route, const HttpRequest& request,
              const std::shared_ptr<HttpReply>& reply) {
    (this->*route.handler)(request, reply);
  }
  // Describe the model for lists: in OpenAI's form, and in those of Ollama's /api/tags, /api/ps
  // (without the time at which it is unloaded) and /api/show.
  Json describe_model() const;
  Json describe_to_ollama() const;
  Json describe_running() const;
  Json describe_in_full() const;

 private:
  std::string owner_of(const HttpRequest& request, const OrderedJson& body) const;
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
  void metrics(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  // These are in service_slots.cpp.
  void slots(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void act_on_slot(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  Json describe_slots(const std::string& key) const;
  void answer_chat(const HttpRequest& request, OrderedJson body,
                   const std::shared_ptr<HttpReply>& reply);
  void version(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void of_several(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply);
  void start(CompletionRequest wanted, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  void start(TextReadings::Request wanted, const HttpRequest& request,
             const std::shared_ptr<HttpReply>& reply);
  // Parses the body, an object, and counts fields without effect.
  OrderedJson read_body(const HttpRequest& request);
  // This is the prompt of a chat, with a placeholder for each of its images.
  struct ChatText {
    std::string prompt;
    std::vector<std::string> images;  // contents of files
  };
  // Takes the messages out of the body.
  ChatText chat_prompt(OrderedJson& body) const;
  // Puts what stands for the images into a prompt and names their rows in `images`.
  void show_images(const ChatText& text, const std::string& owner, std::vector<int32_t>& prompt,
                   std::vector<PromptImage>& images) const;
  // Returns the number of tokens of a chat.
  int64_t count_chat(const HttpRequest& request, OrderedJson& body) const;
  PromptLimits prompt_limits() const;

  const LoadedModel& model_;
  Scheduler& scheduler_;
  const ServiceOptions options_;
  const ChatPrompt chat_;
  const std::optional<Reranker> reranker_;
  const TokenTexts tokens_;
  const std::shared_ptr<Door> door_;
  const std::shared_ptr<Metrics> metrics_;
  const int64_t started_;
};

}  // namespace walsh
