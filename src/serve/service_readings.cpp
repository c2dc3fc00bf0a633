// Implements the endpoints that read texts, for embeddings and rankings.
#include "serve/embeddings_api.h"
#include "serve/service.h"

namespace walsh {

void Service::start(TextReadings::Request wanted, const HttpRequest& request,
                    const std::shared_ptr<HttpReply>& reply) {
  door_->refuse_if_draining();
  std::make_shared<TextReadings>(std::move(wanted), scheduler_, *metrics_, reply, request.record)
      ->start();
}

void Service::embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                    EmbeddingsForm form) {
  const OrderedJson body = read_body(request);
  start(parse_embeddings(body, form, model_, prompt_limits(), options_.model_name,
                         owner_of(request, body)),
        request, reply);
}

void Service::embeddings(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  embed(request, reply, EmbeddingsForm::openai);
}

void Service::llama_embedding(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  embed(request, reply, EmbeddingsForm::llama);
}

void Service::ollama_embed(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  embed(request, reply, EmbeddingsForm::ollama);
}

void Service::ollama_embeddings(const HttpRequest& request,
                                const std::shared_ptr<HttpReply>& reply) {
  embed(request, reply, EmbeddingsForm::old_ollama);
}

void Service::rerank(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  if (!reranker_)
    throw ApiError(400, options_.model_name +
                            " does not rank documents: models named so that judge by yes and no "
                            "(Qwen3-Reranker) do, or others with --reranker");
  start(parse_rerank(body, *reranker_, model_, prompt_limits(), options_.model_name,
                     owner_of(request, body)),
        request, reply);
}

}  // namespace walsh
