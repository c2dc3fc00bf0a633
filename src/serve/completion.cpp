#include "serve/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

namespace walsh {
namespace {

std::string new_id(bool chat) {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return fmt::format("{}{:016x}{:016x}", chat ? "chatcmpl-" : "cmpl-", random(), random());
}

// Mistral's templates take ids of nine letters only.
std::string new_call_id(ToolSyntax syntax) {
  const std::string random = new_id(true).substr(std::string_view("chatcmpl-").size());
  const bool mistral = syntax == ToolSyntax::mistral || syntax == ToolSyntax::mistral_named;
  return mistral ? random.substr(0, 9) : "call_" + random.substr(0, 24);
}

std::string event(const Json& object) {
  return "data: " + object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

const char* reason_text(StopReason reason) {
  const bool ended = reason == StopReason::stop_token || reason == StopReason::callback;
  return ended ? "stop" : "length";
}

}  // namespace

// One text. It knows what it has said; the completion makes answers of it.
class Completion::Choice : public RequestSink {
 public:
  struct Call {
    std::string id, name, arguments;
  };

  Choice(std::shared_ptr<Completion> owner, size_t index, std::span<const int32_t> prompt)
      : index(index),
        owner_(std::move(owner)),
        stopped_(owner_->tokenizer_, prompt, owner_->request_.stop),
        last_time_(std::chrono::steady_clock::now()) {
    if (owner_->request_.echo) text = owner_->tokenizer_.decode(prompt, true);
    if (owner_->request_.echo) first_prompt_token_ = prompt.front();
    if (const auto& options = owner_->request_.reader) {
      reader_.emplace(*options);
      stopped_.show(options->syntax.marks());
    }
  }

  void prompt_scored(std::span<const ScoredToken> tokens) override {
    ScoredToken first;
    first.token = first_prompt_token_;
    scored.push_back(first);
    scored.insert(scored.end(), tokens.begin(), tokens.end());
  }

  bool chosen(const ScoredToken& token) override {
    const auto now = std::chrono::steady_clock::now();
    owner_->metrics_.token(std::chrono::duration<double>(now - last_time_).count(), first_);
    first_ = false;
    last_time_ = now;
    if (owner_->request_.text.logprobs >= 0) scored.push_back(token);
    const AnswerDelta delta = read(stopped_.push(token.token), false);
    owner_->send(*this, delta, &token, false);
    const bool enough =
        reader_ && static_cast<int64_t>(reader_->calls()) >= owner_->request_.most_calls;
    return !stopped_.stopped() && !enough;
  }

  void ended(const RequestEnd& what) override {
    end = what;
    const AnswerDelta rest = read(stopped_.finish(), true);
    reason = reason_text(what.reason);
    if (!calls.empty() && std::string_view(reason) == "stop") reason = "tool_calls";
    owner_->metrics_.ended(what);
    owner_->send(*this, rest, nullptr, true);
    leave();
  }

  void failed(const Error& what) override {
    error = what;
    leave();
  }

  // The stop string that ended it.
  const std::optional<std::string>& stop() const { return stopped_.stop(); }
  // It was never given to the scheduler.
  void drop() { owner_.reset(); }

  const size_t index;
  std::string text, reasoning;
  std::vector<Call> calls;
  bool begun = false;               // something of it was sent
  std::vector<ScoredToken> scored;  // with those of the prompt, if they are wanted
  RequestEnd end;
  const char* reason = nullptr;
  std::optional<Error> error;

 private:
  // What a piece of the model's text adds to the answer.
  AnswerDelta read(const std::string& piece, bool last) {
    AnswerDelta delta;
    if (!reader_) {
      delta.content = piece;
    } else {
      delta = reader_->push(piece);
      if (last) delta.append(reader_->finish());
    }
    if (!owner_->request_.show_reasoning) delta.reasoning.clear();
    text += delta.content;
    reasoning += delta.reasoning;
    for (const AnswerDelta::Call& call : delta.calls) {
      if (call.index == calls.size())
        calls.push_back({new_call_id(owner_->request_.reader->syntax.tools), call.name, ""});
      calls[call.index].arguments += call.arguments;
    }
    return delta;
  }

  // The owner lives as long as somebody may call.
  void leave() {
    const std::shared_ptr<Completion> owner = std::move(owner_);
    owner->choice_ended();
  }

  std::shared_ptr<Completion> owner_;
  StoppedText stopped_;
  std::optional<AnswerReader> reader_;
  std::chrono::steady_clock::time_point last_time_;
  bool first_ = true;
  int32_t first_prompt_token_ = -1;
};

Completion::Completion(CompletionRequest request, const Tokenizer& tokenizer, Metrics& metrics,
                       std::shared_ptr<HttpReply> reply, std::string model_name)
    : request_(std::move(request)),
      tokenizer_(tokenizer),
      metrics_(metrics),
      reply_(std::move(reply)),
      model_name_(std::move(model_name)),
      id_(new_id(request_.chat)),
      created_(std::time(nullptr)) {}

Completion::~Completion() = default;

void Completion::start(Scheduler& scheduler) {
  for (const auto& prompt : request_.prompts)
    for (int64_t i = 0; i < request_.n; ++i)
      choices_.push_back(std::make_shared<Choice>(shared_from_this(), choices_.size(), prompt));
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < choices_.size(); ++i) {
    const auto n = static_cast<size_t>(request_.n);
    TextRequest text = request_.text;
    text.prompt = request_.prompts[i / n];
    text.sampler.seed += i % n;
    try {
      ids_.push_back(scheduler.add(std::move(text), choices_[i]));
    } catch (const Error& e) {
      for (const uint64_t id : ids_)
        scheduler.cancel(id);
      refused_ = true;  // nothing is answered by those that were taken
      for (; i < choices_.size(); ++i)
        choices_[i]->drop();
      throw api_error(e);
    }
  }
  reply_->on_gone([weak = weak_from_this(), &scheduler] {
    const auto self = weak.lock();
    if (!self) return;
    const std::lock_guard guard(self->mutex_);
    for (const uint64_t id : self->ids_)
      scheduler.cancel(id);
  });
}

Json Completion::header(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_name_},
          {"system_fingerprint", "walsh"}};
}

Json Completion::usage() const {
  int64_t prompt = 0, cached = 0, tokens = 0;
  for (const auto& choice : choices_) {
    if (choice->index % static_cast<size_t>(request_.n) == 0) {
      prompt += choice->end.prompt_tokens;
      cached += choice->end.cached_tokens;
    }
    tokens += choice->end.tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", tokens},
          {"total_tokens", prompt + tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

std::string Completion::token_text(int32_t token) const {
  return tokenizer_.decode({&token, 1}, false);
}

Json Completion::chat_logprob(const ScoredToken& token) const {
  const auto entry = [&](int32_t id, float logprob) -> Json {
    const std::string text = token_text(id);
    return {{"token", text},
            {"logprob", logprob},
            {"bytes", std::vector<uint8_t>(text.begin(), text.end())}};
  };
  Json result = entry(token.token, token.logprob);
  result["top_logprobs"] = Json::array();
  for (const TokenLogprob& best : token.best)
    result["top_logprobs"].push_back(entry(best.token, best.logprob));
  return result;
}

// OpenAI's older form: lists side by side.
size_t Completion::add_logprob(Json& lists, const ScoredToken& token, size_t offset) const {
  if (lists.is_null()) {
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      lists[key] = Json::array();
  }
  const std::string text = token_text(token.token);
  const bool first = lists["tokens"].empty() && request_.echo && offset == 0;
  lists["tokens"].push_back(text);
  lists["text_offset"].push_back(offset);
  lists["token_logprobs"].push_back(first ? Json() : Json(token.logprob));
  if (first) {
    lists["top_logprobs"].push_back(Json());
    return text.size();
  }
  Json best = Json::object();
  for (const TokenLogprob& one : token.best)
    best.emplace(token_text(one.token), one.logprob);
  lists["top_logprobs"].push_back(std::move(best));
  return text.size();
}

// With the id and the name of a call in its first piece.
Json Completion::chat_delta(const Choice& choice, const AnswerDelta& delta) const {
  Json result = Json::object();
  if (!delta.reasoning.empty()) result["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) result["content"] = delta.content;
  for (const AnswerDelta::Call& call : delta.calls) {
    Json one = {{"index", call.index}, {"function", {{"arguments", call.arguments}}}};
    if (!call.name.empty()) {
      one["id"] = choice.calls[call.index].id;
      one["type"] = "function";
      one["function"]["name"] = call.name;
    }
    result["tool_calls"].push_back(std::move(one));
  }
  return result;
}

Json Completion::chat_message(const Choice& choice) const {
  Json message = {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}};
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (choice.calls.empty()) return message;
  if (choice.text.empty()) message["content"] = nullptr;
  for (const Choice::Call& call : choice.calls)
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return message;
}

Json Completion::chunk(const Choice& choice, const AnswerDelta& delta, const ScoredToken* token,
                       bool last) const {
  Json one = {{"index", choice.index},
              {"finish_reason", last ? Json(choice.reason) : Json()},
              {"logprobs", nullptr}};
  if (last && choice.stop()) one["stop_reason"] = *choice.stop();
  const bool scored = token != nullptr && request_.text.logprobs >= 0;
  if (request_.chat) {
    one["delta"] = chat_delta(choice, delta);
    if (scored) one["logprobs"] = {{"content", Json::array({chat_logprob(*token)})}};
  } else {
    one["text"] = delta.content;
    if (scored) add_logprob(one["logprobs"], *token, choice.text.size() - delta.content.size());
  }
  Json result = header(request_.chat ? "chat.completion.chunk" : "text_completion");
  result["choices"] = Json::array({std::move(one)});
  return result;
}

// A piece of a text, or its end.
void Completion::send(Choice& choice, const AnswerDelta& delta, const ScoredToken* token,
                      bool last) {
  if (!request_.stream || refused_) return;
  start_events();
  if (!std::exchange(choice.begun, true)) {
    if (request_.chat) {
      Json first = chunk(choice, {}, nullptr, false);
      first["choices"][0]["delta"] = {{"role", "assistant"}, {"content", ""}};
      reply_->event(event(first));
    } else if (request_.echo) {
      AnswerDelta prompt;
      prompt.content = choice.text.substr(0, choice.text.size() - delta.content.size());
      reply_->event(event(chunk(choice, prompt, nullptr, false)));
    }
  }
  const bool scored = token != nullptr && request_.text.logprobs >= 0;
  if (delta.empty() && !scored && !last) return;
  reply_->event(event(chunk(choice, delta, token, last)));
}

void Completion::choice_ended() {
  if (++ended_ == choices_.size() && !refused_) finish();
}

void Completion::start_events() {
  if (!std::exchange(streaming_, true)) reply_->start_events({});
}

Json Completion::answer() const {
  Json result = header(request_.chat ? "chat.completion" : "text_completion");
  result["choices"] = Json::array();
  for (const auto& choice : choices_) {
    Json one = {{"index", choice->index}, {"finish_reason", choice->reason}, {"logprobs", nullptr}};
    if (choice->stop()) one["stop_reason"] = *choice->stop();
    if (request_.chat) {
      one["message"] = chat_message(*choice);
      if (request_.text.logprobs >= 0) one["logprobs"]["content"] = Json::array();
      for (const ScoredToken& token : choice->scored)
        one["logprobs"]["content"].push_back(chat_logprob(token));
    } else {
      one["text"] = choice->text;
      size_t offset = 0;
      for (const ScoredToken& token : choice->scored)
        offset += add_logprob(one["logprobs"], token, offset);
    }
    result["choices"].push_back(std::move(one));
  }
  result["usage"] = usage();
  const RequestEnd& end = choices_.front()->end;
  result["timings"] = {{"queue_ms", end.queue_seconds * 1e3},
                       {"prompt_n", end.prompt_tokens - end.cached_tokens},
                       {"prompt_ms", end.prompt_seconds * 1e3},
                       {"predicted_n", end.tokens},
                       {"predicted_ms", end.decode_seconds * 1e3}};
  return result;
}

void Completion::finish() {
  const auto failed = std::find_if(choices_.begin(), choices_.end(),
                                   [](const auto& choice) { return choice->error.has_value(); });
  if (request_.stream && (streaming_ || failed == choices_.end())) {
    start_events();
    if (failed != choices_.end()) {
      reply_->event("data: " + api_error(*(*failed)->error).response().body + "\n\n");
    } else if (request_.include_usage) {
      Json last = header(request_.chat ? "chat.completion.chunk" : "text_completion");
      last["choices"] = Json::array();
      last["usage"] = usage();
      reply_->event(event(last));
    }
    reply_->event("data: [DONE]\n\n");
    reply_->end_events();
  } else if (failed != choices_.end()) {
    reply_->send(api_error(*(*failed)->error).response());
  } else {
    HttpResponse response;
    response.body = answer().dump(-1, ' ', false, Json::error_handler_t::replace);
    reply_->send(std::move(response));
  }
  choices_.clear();
}

}  // namespace walsh
