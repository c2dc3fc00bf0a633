#include "serve/llama_api.h"

#include <map>
#include <utility>

#include "io/wide_integers.h"
#include "serve/ordered_fields.h"
#include "serve/prompts.h"
#include "serve/sampling_fields.h"
#include "serve/translated_reply.h"

namespace walsh {
namespace {

// Refuses fields that would change the answer.
void refuse_others(const OrderedJson& request) {
  for (const char* key : {"n_indent", "t_max_predict_ms", "post_sampling_probs"}) {
    const OrderedJson* value = find_value(request, key);
    if (value != nullptr && *value != 0 && *value != false)
      refuse_value(key, "0, false or absent: it is not supported");
  }
  for (const char* key : {"image_data", "lora"}) {
    const OrderedJson* value = find_value(request, key);
    if (value != nullptr && !value->empty())
      refuse_value(key, "empty or absent: it is not supported");
  }
}

// Returns how many tokens a request wants at most; -1 means until the text ends. llama.cpp's -2,
// "until the context is full", becomes -1, which differs only where contexts shift.
OrderedJson most_tokens(const OrderedJson& request) {
  for (const char* key : {"n_predict", "max_tokens"}) {
    const OrderedJson* value = find_value(request, key);
    if (value != nullptr) return *value == -2 ? OrderedJson(-1) : *value;
  }
  return -1;
}

// Keeps the fields that the client asks for. "generation_settings/seed" is a field of a field.
Json selected(const Json& result, const std::vector<std::string>& fields) {
  if (fields.empty()) return result;
  Json kept = Json::object();
  for (const std::string& field : fields) {
    const Json::json_pointer path("/" + field);
    if (result.contains(path)) kept[field] = result.at(path);
  }
  return kept;
}

// Reads response_fields.
std::vector<std::string> wanted_fields(const OrderedJson& request) {
  std::vector<std::string> fields;
  const OrderedJson* list = find_value(request, "response_fields");
  if (list == nullptr) return fields;
  const char* expected = "a list of names such as \"content\" or \"generation_settings/seed\"";
  if (!list->is_array()) refuse_value("response_fields", expected);
  for (const OrderedJson& name : *list) {
    const bool valid = name.is_string() && name != "" &&
                       name.get_ref<const std::string&>().find('~') == std::string::npos;
    if (!valid) refuse_value("response_fields", expected);
    fields.push_back(name.get<std::string>());
  }
  return fields;
}

class LlamaReply : public TranslatedReply {
 public:
  LlamaReply(std::shared_ptr<HttpReply> reply, const OrderedJson& request, LlamaRequest repeated)
      : TranslatedReply(std::move(reply)),
        repeated_(std::move(repeated)),
        several_(has_several_prompts(request.value("prompt", OrderedJson()))),
        shows_tokens_(request.value("return_tokens", OrderedJson()) == true),
        fields_(wanted_fields(request)) {}

 protected:
  Json whole(const Json& answer) override {
    Json results = Json::array();
    for (const Json& choice : answer.at("choices")) {
      State state;
      state.prompt_tokens = choice.at("prompt_token_ids").size();
      state.tokens = choice.at("token_ids").size();
      Json result = last(choice, answer, state);
      if (shows_tokens_) result["tokens"] = choice.at("token_ids");
      results.push_back(selected(result, fields_));
    }
    return several_ ? results : results.at(0);
  }

  void chunk(const Json& answer) override {
    if (answer.at("choices").empty()) return;  // the usage
    const Json& choice = answer["choices"][0];
    State& state = states_[choice.at("index").get<size_t>()];
    if (choice.contains("prompt_token_ids"))
      state.prompt_tokens = choice["prompt_token_ids"].size();
    const std::string& text = choice.at("text").get_ref<const std::string&>();
    state.has_new_line = state.has_new_line || text.find('\n') != text.npos;
    if (!choice.at("finish_reason").is_null())
      return put(selected(last(choice, answer, state), fields_));
    const Json ids = choice.value("token_ids", Json::array());
    state.tokens += ids.size();
    if (ids.empty() && text.empty()) return;
    Json piece = {{"index", choice["index"]},
                  {"content", text},
                  {"tokens", ids},
                  {"stop", false},
                  {"id_slot", -1},
                  {"tokens_predicted", state.tokens},
                  {"tokens_evaluated", state.prompt_tokens}};
    add_scores(choice, piece);
    if (answer.contains("timings")) piece["timings"] = answer["timings"];
    put(piece);
  }

  void broken(const Json& error) override { put(error); }
  void done() override {}

 private:
  // Holds what was counted of a choice so far.
  struct State {
    size_t prompt_tokens = 0, tokens = 0;
    bool has_new_line = false;
  };

  void put(const Json& data) { emit_text("data: " + dump_exact(data) + "\n\n"); }

  static void add_scores(const Json& choice, Json& result) {
    const auto scores = choice.find("completion_probabilities");
    if (scores != choice.end()) result["completion_probabilities"] = *scores;
  }

  // Returns the end of a choice, or all of it.
  Json last(const Json& choice, const Json& answer, const State& state) const {
    const size_t index = choice.at("index").get<size_t>();
    const std::string& text = choice.at("text").get_ref<const std::string&>();
    const Json stop = choice.value("stop_reason", Json());
    const bool limit = choice.at("finish_reason") == "length";
    Json result = {
        {"index", index},
        {"content", text},
        {"tokens", Json::array()},
        {"id_slot", -1},
        {"stop", true},
        {"model", answer.at("model")},
        {"tokens_predicted", state.tokens},
        {"tokens_evaluated", state.prompt_tokens},
        {"tokens_cached", state.prompt_tokens + state.tokens},
        {"generation_settings", repeated_.settings},
        {"prompt", repeated_.prompts.at(index % repeated_.prompts.size())},
        {"has_new_line", state.has_new_line || text.find('\n') != text.npos},
        {"truncated", answer.value("timings", Json::object()).contains("dropped_n")},
        {"stop_type", limit              ? "limit"
                      : stop.is_string() ? "word"
                                         : "eos"},
        {"stopping_word", stop.is_string() ? stop : Json("")},
    };
    add_scores(choice, result);
    if (answer.contains("timings")) result["timings"] = answer["timings"];
    return result;
  }

  const LlamaRequest repeated_;
  const bool several_, shows_tokens_;
  const std::vector<std::string> fields_;
  std::map<size_t, State> states_;  // of the choices of a stream
};

}  // namespace

OrderedJson completion_of_llama(const OrderedJson& request) {
  refuse_others(request);
  OrderedJson completion = OrderedJson::object();
  copy_sampling(request, completion);
  for (const char* key : {"stop", "stream", "cache_prompt", "cache_salt", "grammar", "json_schema",
                          "response_format", "timings_per_token", "model", "n_probs", "prompt",
                          "speculative.n_max", "context_shift", "n_keep", "id_slot"})
    if (const OrderedJson* value = find_value(request, key)) completion[key] = *value;
  completion["max_tokens"] = most_tokens(request);
  completion["return_token_ids"] = true;
  return completion;
}

OrderedJson infill_of_llama(const OrderedJson& request) {
  const auto text = [&](const char* key) {
    const OrderedJson* value = find_value(request, key);
    if (value == nullptr || !value->is_string()) refuse_value(key, "a string");
    return value->get<std::string>();
  };
  const bool begun = find_value(request, "prompt") != nullptr;
  OrderedJson completion = completion_of_llama(request);
  completion["prompt"] = text("input_prefix") + (begun ? text("prompt") : "");
  completion["suffix"] = text("input_suffix");
  const OrderedJson* files = find_value(request, "input_extra");
  completion["input_extra"] = files != nullptr ? *files : OrderedJson::array();
  return completion;
}

const FieldNames& infill_names() {
  static const FieldNames names = {{"suffix", "input_suffix"}, {"prompt", "input_prefix"}};
  return names;
}

std::shared_ptr<HttpReply> llama_reply(std::shared_ptr<HttpReply> reply, const OrderedJson& request,
                                       LlamaRequest repeated) {
  return std::make_shared<LlamaReply>(std::move(reply), request, std::move(repeated));
}

}  // namespace walsh
