// Serves the endpoints about the server and its model, and the chat page.
#include <fmt/format.h>

#include "base/percent.h"
#include "io/json.h"
#include "serve/openapi.h"
#include "serve/page.h"
#include "serve/sampling_fields.h"
#include "serve/service.h"
#include "walsh/version.h"

namespace walsh {
namespace {

std::string cache_name(const CacheTypes& types) {
  return types.keys == types.values ? std::string(types.keys->name)
                                    : fmt::format("{}/{}", types.keys->name, types.values->name);
}

Json input_modalities(const ImageReader& images) {
  return images.present() ? Json::array({"text", "image"}) : Json::array({"text"});
}

}  // namespace

HttpResponse json_response(const Json& body) {
  HttpResponse response;
  response.body = body.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

Json Service::describe_model() const {
  const Model& m = model_.model;
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "walsh"},
          {"input_modalities", input_modalities(*model_.images)},
          {"output_modalities", Json::array({"text"})},
          {"meta",
           {{"n_vocab", m.config.vocab},
            {"n_ctx", scheduler_.positions()},
            {"n_ctx_train", m.config.max_positions},
            {"n_embd", m.config.hidden},
            {"size", m.model_bytes()},
            {"type", m.type_name()},
            {"bits_per_weight", m.bits_per_weight()}}}};
}

void Service::models(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(json_response({{"object", "list"}, {"data", Json::array({describe_model()})}}));
}

void Service::model(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const std::string name =
      percent_decoded(request.path.substr(std::string_view("/v1/models/").size()));
  if (name != options_.model_name) throw ApiError(404, "there is no model '" + name + "'", "model");
  reply->send(json_response(describe_model()));
}

// Uses the names of llama.cpp's endpoint where it has them.
void Service::props(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  const Model& m = model_.model;
  const SamplerOptions sampler = model_.generation.sampler(options_.sampling);
  const Json params = sampling_values(sampler);
  const auto token = [&](std::optional<int32_t> id) {
    return id ? model_.tokenizer.token(*id).value_or("") : "";
  };
  reply->send(json_response({
      {"model_alias", options_.model_name},
      {"model_path", model_.path},
      {"build_info", fmt::format("walsh {}", kVersion)},
      {"total_slots", scheduler_.slots()},
      {"n_ctx", scheduler_.positions()},
      {"has_chat_template", static_cast<bool>(chat_)},
      {"chat_template", model_.chat ? model_.chat->source(false) : ""},
      {"bos_token", token(model_.tokenizer.bos())},
      {"eos_token", token(model_.tokenizer.eos())},
      {"modalities", {{"vision", model_.images->present()}, {"audio", false}}},
      {"type", m.type_name()},
      {"bits_per_weight", m.bits_per_weight()},
      {"cache_type", cache_name(m.cache)},
      {"device", m.device.name()},
      {"default_generation_settings", {{"n_ctx", scheduler_.positions()}, {"params", params}}},
  }));
}

void Service::version(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(json_response({{"version", kVersion}}));
}

// These endpoints are those of a server of several models.
void Service::of_several(const HttpRequest& request, const std::shared_ptr<HttpReply>&) {
  throw ApiError(404, "there is no " + request.path + ": one model is served, which stays loaded");
}

void Service::openapi(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  HttpResponse response;
  response.body = openapi_text(model_.model.config.vocab - 1);
  reply->send(std::move(response));
}

void Service::page(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(page_response());
}

}  // namespace walsh
