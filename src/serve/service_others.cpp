// Serves endpoints of llama.cpp and Ollama, for programs that know no others.
#include <algorithm>

#include "io/json.h"
#include "serve/chat_syntax.h"
#include "serve/fill_prompt.h"
#include "serve/llama_api.h"
#include "serve/ollama_api.h"
#include "serve/ordered_fields.h"
#include "serve/sampling_fields.h"
#include "serve/service.h"
#include "serve/translated_reply.h"

namespace walsh {

void Service::llama_completion(const HttpRequest& request,
                               const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  answer_llama(request, body, completion_of_llama(body), reply);
}

void Service::llama_infill(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  const OrderedJson body = read_body(request);
  if (!fill_tokens(model_.tokenizer))
    throw ApiError(501, options_.model_name +
                            " cannot fill in text before a suffix: its tokenizer has no tokens for "
                            "the prefix, the suffix and the middle");
  const OrderedJson translated = infill_of_llama(body);
  try {
    answer_llama(request, body, translated, reply);
  } catch (const ApiError& e) {
    throw renamed(e, infill_names());
  }
}

void Service::answer_llama(const HttpRequest& request, const OrderedJson& body,
                           const OrderedJson& translated, const std::shared_ptr<HttpReply>& reply) {
  auto completion = parse_completion(translated, model_, prompt_limits(), options_.sampling,
                                     owner_of(request, translated));
  const TextRequest& text = completion.text;
  LlamaRequest repeated;
  repeated.settings = sampling_values(text.sampler);
  repeated.settings["seed"] = text.sampler.seed;
  repeated.settings["n_predict"] = text.max_tokens;
  repeated.settings["n_probs"] = std::max(0, text.logprobs);
  repeated.settings["stop"] = completion.stop;
  repeated.settings["stream"] = completion.stream;
  Json& biases = repeated.settings["logit_bias"] = Json::array();
  for (const TokenBias& one : text.biases)  // null stands for minus infinity
    biases.push_back({{"token", one.token}, {"bias", one.bias}});
  if (text.stop_ids.empty())  // ignore_eos
    for (const int32_t id : model_.generation.stop_ids())
      biases.push_back({{"token", id}, {"bias", nullptr}});
  for (const auto& prompt : completion.prompts)
    repeated.prompts.push_back(model_.tokenizer.decode(prompt, true));
  start(std::move(completion), request, llama_reply(reply, body, std::move(repeated)));
}

void Service::ollama_chat(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  answer_ollama(request, reply, OllamaForm::chat);
}

void Service::ollama_generate(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  answer_ollama(request, reply, OllamaForm::generate);
}

void Service::answer_ollama(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply,
                            OllamaForm form) {
  const OrderedJson body = read_body(request);
  if (only_loads(body, form))
    return reply->send(json_response(ollama_loaded(options_.model_name, form)));
  const OrderedJson* suffix = find_value(body, "suffix");
  const bool raw = body.value("raw", OrderedJson()) == true || (suffix != nullptr && *suffix != "");
  const auto translated = ollama_reply(reply, form);
  try {
    if (form == OllamaForm::generate && (raw || !chat_)) {
      const OrderedJson completion = completion_of_ollama(body);
      return start(parse_completion(completion, model_, prompt_limits(), options_.sampling,
                                    owner_of(request, completion)),
                   request, translated);
    }
    answer_chat(request, chat_of_ollama(body, form), translated);
  } catch (const ApiError& e) {
    throw renamed(e, ollama_names());
  }
}

Json Service::describe_to_ollama() const {
  const std::string& family = model_.model.config.family;
  return {{"name", options_.model_name},
          {"model", options_.model_name},
          {"modified_at", ollama_time(static_cast<double>(started_))},
          {"size", model_.model.model_bytes()},
          {"digest", ""},
          {"details",
           {{"parent_model", ""},
            {"format", "walsh"},
            {"family", family},
            {"families", Json::array({family})},
            {"parameter_size", ""},
            {"quantization_level", model_.model.type_name()}}}};
}

void Service::ollama_tags(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(json_response({{"models", Json::array({describe_to_ollama()})}}));
}

Json Service::describe_running() const {
  Json model = describe_to_ollama();
  model["expires_at"] = kNeverUnloaded;
  model["size_vram"] = model_.model.device.cuda ? model["size"] : Json(0);
  model["context_length"] = scheduler_.positions();
  return model;
}

void Service::ollama_running(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(json_response({{"models", Json::array({describe_running()})}}));
}

Json Service::describe_in_full() const {
  const ModelConfig& config = model_.model.config;
  Json abilities = Json::array({"completion"});
  if (model_.images->present()) abilities.push_back("vision");
  std::string source;
  if (model_.chat) {
    source = model_.chat->source(true);
    const ChatSyntax syntax = chat_syntax(source, "");
    if (syntax.shows_tools) abilities.push_back("tools");
    if (!syntax.think_end.empty()) abilities.push_back("thinking");
  }
  const Json described = describe_to_ollama();
  return {{"modelfile", ""},
          {"parameters", ""},
          {"template", source},
          {"details", described["details"]},
          {"model_info",
           {{"general.architecture", config.family},
            {config.family + ".context_length", scheduler_.positions()},
            {config.family + ".embedding_length", config.hidden},
            {config.family + ".block_count", config.layers.size()}}},
          {"capabilities", abilities},
          {"modified_at", described["modified_at"]}};
}

void Service::ollama_show(const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
  read_body(request);  // the model is this one whatever its name
  reply->send(json_response(describe_in_full()));
}

void Service::ollama_version(const HttpRequest&, const std::shared_ptr<HttpReply>& reply) {
  reply->send(json_response({{"version", kOllamaVersion}}));
}

}  // namespace walsh
