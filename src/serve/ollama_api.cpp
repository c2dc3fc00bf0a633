#include "serve/ollama_api.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "io/wide_integers.h"

namespace walsh {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t nanoseconds(const Json& timings, const char* key) {
  const double milliseconds = timings.is_object() ? timings.value(key, 0.0) : 0.0;
  return static_cast<int64_t>(milliseconds * 1e6);
}

// Returns the part of an answer that has its text, which is whole or a piece.
Json text_of(const std::string& text, const std::string& thinking, const Json& calls,
             OllamaForm form) {
  if (form == OllamaForm::generate) {
    Json result = {{"response", text}};
    if (!thinking.empty()) result["thinking"] = thinking;
    return result;
  }
  Json message = {{"role", "assistant"}, {"content", text}};
  if (!thinking.empty()) message["thinking"] = thinking;
  if (!calls.empty()) message["tool_calls"] = calls;
  return {{"message", message}};
}

Json call_of(const std::string& name, const std::string& arguments) {
  return {{"function", {{"name", name}, {"arguments", arguments_object(arguments)}}}};
}

std::string text_at(const Json& object, const char* key) {
  const Json value = object.value(key, Json());
  return value.is_string() ? value.get<std::string>() : "";
}

class OllamaReply : public TranslatedReply {
 public:
  OllamaReply(std::shared_ptr<HttpReply> reply, OllamaForm form)
      : TranslatedReply(std::move(reply), "application/x-ndjson"), form_(form) {}

 protected:
  Json whole(const Json& answer) override {
    const Json& choice = answer.at("choices").at(0);
    const Json said = choice.value("message", Json::object());
    Json calls = Json::array();
    for (const Json& call : said.value("tool_calls", Json::array()))
      calls.push_back(call_of(call.at("function").at("name"), call["function"].at("arguments")));
    // A completion has its text beside the message.
    const std::string text = text_at(choice, "text") + text_at(said, "content");
    Json result = text_of(text, text_at(said, "reasoning_content"), calls, form_);
    result.update(end_of(answer.at("model"), choice, answer.value("usage", Json()),
                         answer.value("timings", Json())));
    return result;
  }

  Json error(const Json& answer) override { return ollama_error(answer); }
  void broken(const Json& error) override { put(ollama_error(error)); }

  void chunk(const Json& answer) override {
    model_ = answer.value("model", "");
    if (answer.contains("usage") && answer["usage"].is_object()) usage_ = answer["usage"];
    if (answer.contains("timings")) timings_ = answer["timings"];
    if (!answer.contains("choices") || answer["choices"].empty()) return;
    const Json& choice = answer["choices"][0];
    const Json delta = choice.value("delta", Json::object());
    for (const Json& call : delta.value("tool_calls", Json::array()))
      add_call(call);
    const std::string text = text_at(choice, "text") + text_at(delta, "content");
    const std::string thinking = text_at(delta, "reasoning_content");
    if (!text.empty() || !thinking.empty()) put_piece(text, thinking, Json::array());
    if (!choice.value("finish_reason", Json()).is_null()) end_ = choice;
  }

  // Calls are sent whole, as Ollama does.
  void done() override {
    Json calls = Json::array();
    for (const auto& [name, arguments] : calls_)
      calls.push_back(call_of(name, arguments));
    if (!calls.empty()) put_piece("", "", calls);
    Json last = text_of("", "", Json::array(), form_);
    last.update(end_of(model_, end_, usage_, timings_));
    put(last);
  }

 private:
  void put(const Json& line) { emit_text(dump_exact(line) + "\n"); }

  void put_piece(const std::string& text, const std::string& thinking, const Json& calls) {
    Json piece = text_of(text, thinking, calls, form_);
    piece["model"] = model_;
    piece["created_at"] = ollama_time(now());
    piece["done"] = false;
    put(piece);
  }

  // The first delta of a call has its name, every one a part of its arguments.
  void add_call(const Json& call) {
    const auto index = static_cast<size_t>(count_at(call, "index"));
    if (index >= calls_.size()) calls_.resize(index + 1);
    const Json function = call.value("function", Json::object());
    calls_[index].first += text_at(function, "name");
    calls_[index].second += text_at(function, "arguments");
  }

  static Json end_of(const std::string& model, const Json& choice, const Json& usage,
                     const Json& timings) {
    const bool length = choice.is_object() && choice.value("finish_reason", Json()) == "length";
    const int64_t prompt = nanoseconds(timings, "prompt_ms");
    const int64_t predicted = nanoseconds(timings, "predicted_ms");
    return {{"model", model},
            {"created_at", ollama_time(now())},
            {"done", true},
            {"done_reason", length ? "length" : "stop"},
            {"total_duration", nanoseconds(timings, "queue_ms") + prompt + predicted},
            {"load_duration", 0},
            {"prompt_eval_count", count_at(usage, "prompt_tokens")},
            {"prompt_eval_duration", prompt},
            {"eval_count", count_at(usage, "completion_tokens")},
            {"eval_duration", predicted}};
  }

  const OllamaForm form_;
  std::string model_;
  std::vector<std::pair<std::string, std::string>> calls_;  // they are names and arguments
  Json end_, usage_, timings_;
};

}  // namespace

std::shared_ptr<HttpReply> ollama_reply(std::shared_ptr<HttpReply> reply, OllamaForm form) {
  return std::make_shared<OllamaReply>(std::move(reply), form);
}

Json ollama_loaded(const std::string& model, OllamaForm form) {
  Json result = text_of("", "", Json::array(), form);
  result.update({{"model", model},
                 {"created_at", ollama_time(now())},
                 {"done", true},
                 {"done_reason", "load"}});
  return result;
}

Json ollama_error(const Json& error) {
  return {{"error", error.value("error", Json::object()).value("message", "")}};
}

std::string ollama_time(double seconds) {
  const double whole = std::floor(seconds);
  const auto micros = static_cast<int64_t>((seconds - whole) * 1e6);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06d}Z",
                     fmt::gmtime(static_cast<std::time_t>(whole)), micros);
}

}  // namespace walsh
