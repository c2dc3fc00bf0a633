#include "serve/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "text/utf8.h"

namespace walsh {
namespace {

std::string new_id(bool chat) {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  const std::lock_guard lock(mutex);
  return fmt::format("{}{:016x}{:016x}", chat ? "chatcmpl-" : "cmpl-", random(), random());
}

// Returns a new id of a call. Mistral's templates accept only ids of nine letters and digits.
std::string new_call_id(const ChatSyntax& syntax) {
  const std::string random = new_id(true).substr(std::string_view("chatcmpl-").size());
  const bool mistral = !syntax.call_begins.empty() && syntax.call_begins[0] == "[TOOL_CALLS]";
  return mistral ? random.substr(0, 9) : "call_" + random.substr(0, 24);
}

std::string text_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event(const Json& object) {
  return "data: " + text_of(object) + "\n\n";
}

const char* reason_text(StopReason reason) {
  const bool ended = reason == StopReason::stop_token || reason == StopReason::callback;
  return ended ? "stop" : "length";
}

}  // namespace

// A choice is one text of the answer. It parses the text and counts; the completion formats
// answers.
class Completion::Choice : public RequestSink {
 public:
  struct Call {
    std::string id, name, arguments;
  };

  Choice(std::shared_ptr<Completion> owner, size_t index, std::span<const int32_t> prompt)
      : index(index),
        owner_(std::move(owner)),
        stopped_(owner_->tokenizer_, prompt, owner_->request_.stop),
        prompt_(prompt),
        last_time_(std::chrono::steady_clock::now()) {
    if (owner_->request_.echo) text = owner_->tokenizer_.decode(prompt, true);
    echoed_ = count_characters(text);
    if (const auto& options = owner_->request_.reader) {
      reader_.emplace(*options);
      stopped_.show(options->syntax.marks(options->read_tools));
    }
  }

  void prompt_scored(std::span<const ScoredToken> tokens) override {
    ScoredToken first;
    first.token = prompt_.front();
    scored.push_back(first);
    scored.insert(scored.end(), tokens.begin(), tokens.end());
    StreamDecoder decoder(owner_->tokenizer_, true);
    size_t offset = 0;
    for (const int32_t token : prompt_) {
      offsets.push_back(offset);
      offset += count_characters(decoder.push(token));
    }
  }

  bool chosen(const ScoredToken& token) override {
    const auto now = std::chrono::steady_clock::now();
    owner_->metrics_.token(std::chrono::duration<double>(now - last_time_).count(), first_);
    if (std::exchange(first_, false)) first_time_ = now;
    last_time_ = now;
    ++so_far_.tokens;
    so_far_.decode_seconds = std::chrono::duration<double>(now - first_time_).count();
    offset = echoed_ + stopped_.characters();
    if (owner_->request_.token_ids && !owner_->request_.stream) ids.push_back(token.token);
    if (owner_->request_.text.logprobs >= 0 && !owner_->request_.stream) {
      scored.push_back(token);
      offsets.push_back(offset);
    }
    const bool reasons = reader_ && reader_->reasoning();
    const AnswerDelta delta = read(stopped_.push(token.token), false);
    if (reasons || (reader_ && reader_->reasoning())) ++reasoning_tokens;
    owner_->send(*this, delta, &token, false);
    satisfied_ = stopped_.stopped() || (reader_ && reader_->satisfied());
    return !satisfied_;
  }

  void ended(const RequestEnd& what) override {
    end = what;
    if (what.reason == StopReason::callback && !satisfied_) return cancelled();
    reason = reason_text(what.reason);
    const AnswerDelta rest = read(stopped_.finish(), true);
    if (!calls.empty() && std::string_view(reason) == "stop") reason = "tool_calls";
    owner_->metrics_.ended(what);
    owner_->record_->add(what);
    owner_->send(*this, rest, nullptr, true);
    if (!owner_->request_.stream) whole = owner_->whole_choice(*this);
    drop_scores();
    leave();
  }

  void failed(const Error& what, const RequestEnd&) override {
    error = what;
    leave();
  }

  // Returns usage and timings until now.
  const RequestEnd& so_far() const { return so_far_; }
  // Returns the stop string that ended the text.
  const std::optional<std::string>& stop() const { return stopped_.stop(); }
  // Frees the scores, which take far more memory than the text made of them.
  void drop_scores() {
    scored = {};
    offsets = {};
  }
  std::span<const int32_t> prompt() const { return prompt_; }
  // Releases a choice that was never given to the scheduler.
  void drop() { owner_.reset(); }

  const size_t index;
  std::string text, reasoning;
  std::vector<Call> calls;
  std::vector<int32_t> ids;  // the text has these, if they are requested and not streamed
  bool begun = false;        // some of it was sent
  // These are the scores of the prompt and, where they are not streamed, of the text, if requested.
  std::vector<ScoredToken> scored;
  std::vector<size_t> offsets;  // each scored token begins here in the text, counted in characters
  size_t offset = 0;            // The latest token begins here.
  int64_t reasoning_tokens = 0;
  std::string whole;  // this is its part of the answer, once it has ended
  RequestEnd end;
  const char* reason = nullptr;
  std::optional<Error> error;

 private:
  // Parses a piece of the model's text.
  AnswerDelta read(const std::string& piece, bool last) {
    AnswerDelta delta;
    if (!reader_) {
      delta.content = piece;
    } else {
      delta = reader_->push(piece);
      if (last) delta.append(reader_->finish(std::string_view(reason) == "length"));
    }
    if (!owner_->request_.show_reasoning) delta.reasoning.clear();
    text += delta.content;
    reasoning += delta.reasoning;
    for (const AnswerDelta::Call& call : delta.calls) {
      if (call.index == calls.size())
        calls.push_back({new_call_id(owner_->request_.reader->syntax), call.name, ""});
      calls[call.index].arguments += call.arguments;
    }
    return delta;
  }

  // Sends nothing rather than a partial answer, in case the client has closed only its own side.
  void cancelled() {
    owner_->metrics_.ended(end);
    failed(Error(ErrorCode::interrupted, "request", "it was cancelled before its text had ended"),
           end);
  }

  // Leaves the owner, which exists as long as callbacks may come.
  void leave() {
    const std::shared_ptr<Completion> owner = std::move(owner_);
    if (owner) owner->choice_ended();  // otherwise sending the end itself has failed
  }

  std::shared_ptr<Completion> owner_;
  StoppedText stopped_;
  const std::span<const int32_t> prompt_;
  size_t echoed_ = 0;  // this many characters of the prompt were sent already
  std::optional<AnswerReader> reader_;
  std::chrono::steady_clock::time_point last_time_, first_time_;
  RequestEnd so_far_;
  bool first_ = true;
  bool satisfied_ = false;  // the answer is complete, so no more tokens are needed
};

Completion::Completion(CompletionRequest request, const Tokenizer& tokenizer,
                       const TokenTexts& tokens, Metrics& metrics, std::shared_ptr<HttpReply> reply,
                       std::shared_ptr<RequestRecord> record, std::string model_name)
    : request_(std::move(request)),
      tokenizer_(tokenizer),
      tokens_(tokens),
      metrics_(metrics),
      reply_(std::move(reply)),
      record_(std::move(record)),
      model_name_(std::move(model_name)),
      id_(new_id(request_.chat)),
      created_(std::time(nullptr)) {}

Completion::~Completion() = default;

// Once the scheduler has the choices they belong to its thread, and may already have ended.
void Completion::start(Scheduler& scheduler) {
  const auto count = static_cast<int64_t>(request_.prompts.size()) * request_.n;
  if (count > scheduler.most())
    throw ApiError(400,
                   fmt::format("{} texts are requested, but at most {} can be accepted at once",
                               count, scheduler.most()),
                   request_.prompts.size() > 1 ? "prompt" : "n");
  std::vector<NewText> texts;
  for (const auto& prompt : request_.prompts) {
    for (int64_t i = 0; i < request_.n; ++i) {
      choices_.push_back(std::make_shared<Choice>(shared_from_this(), choices_.size(), prompt));
      texts.push_back({request_.text, choices_.back()});
      texts.back().request.prompt = prompt;
      texts.back().request.sampler.seed += static_cast<uint64_t>(i);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    try {
      ids_ = scheduler.add(std::move(texts));
    } catch (const Error& e) {
      for (const auto& choice : choices_)
        choice->drop();
      choices_.clear();
      throw e.code() == ErrorCode::limit ? ApiError(429, e.what()) : api_error(e);
    }
  }
  // The mutex is free here, because a client that has left already is reported at once.
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
  int64_t prompt = 0, cached = 0, tokens = 0, reasoning = 0;
  for (const auto& choice : choices_) {
    if (choice->index % static_cast<size_t>(request_.n) == 0) {
      prompt += choice->end.prompt_tokens;
      cached += choice->end.cached_tokens;
    }
    tokens += choice->end.tokens;
    reasoning += choice->reasoning_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", tokens},
          {"total_tokens", prompt + tokens},
          {"prompt_tokens_details", {{"cached_tokens", cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

Json Completion::chat_logprob(const ScoredToken& token) const {
  const auto entry = [&](int32_t id, float logprob) -> Json {
    const std::string_view bytes = tokens_.bytes(id);
    return {{"id", id},
            {"token", tokens_.text(id)},
            {"logprob", logprob},
            {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
  };
  Json result = entry(token.token, token.logprob);
  result["top_logprobs"] = Json::array();
  for (const TokenLogprob& best : token.best)
    result["top_logprobs"].push_back(entry(best.token, best.logprob));
  return result;
}

// Adds a token in OpenAI's older format, which has parallel lists.
void Completion::add_logprob(Json& lists, const ScoredToken& token, size_t offset) const {
  if (lists.is_null()) {
    for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
      lists[key] = Json::array();
  }
  lists["tokens"].push_back(tokens_.text(token.token));
  lists["text_offset"].push_back(offset);
  lists["token_logprobs"].push_back(token.logprob);
  Json best = Json::object();
  for (const TokenLogprob& one : token.best) {
    // If two tokens have the same text, the second is written by its id.
    if (!best.emplace(tokens_.text(one.token), one.logprob).second)
      best[fmt::format("token_id:{}", one.token)] = one.logprob;
  }
  lists["top_logprobs"].push_back(std::move(best));
}

// Formats all kept scores. The first token of a prompt has no probability.
Json Completion::all_logprobs(const Choice& choice) const {
  Json lists;
  for (size_t i = 0; i < choice.scored.size(); ++i)
    add_logprob(lists, choice.scored[i], choice.offsets[i]);
  if (!request_.text.prompt_logprobs || lists.is_null()) return lists;
  lists["token_logprobs"][0] = nullptr;
  lists["top_logprobs"][0] = nullptr;
  return lists;
}

// Returns a delta of a chat as JSON. The first delta of a call has its id and name.
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
    if (scored && request_.scores_by_id) {
      one["completion_probabilities"] = Json::array({chat_logprob(*token)});
    } else if (scored) {
      add_logprob(one["logprobs"], *token, choice.offset);
    }
  }
  Json result = header(request_.chat ? "chat.completion.chunk" : "text_completion");
  result["choices"] = Json::array({std::move(one)});
  if (request_.token_ids && token != nullptr)
    result["choices"][0]["token_ids"] = Json::array({token->token});
  if (request_.include_usage) result["usage"] = nullptr;  // the usage comes in a chunk of its own
  if (request_.running_usage) {
    const auto prompt = static_cast<int64_t>(choice.prompt().size());
    const int64_t tokens = choice.so_far().tokens;
    result["usage"] = {{"prompt_tokens", prompt},
                       {"completion_tokens", tokens},
                       {"total_tokens", prompt + tokens}};
  }
  if (last) {
    result["timings"] = timings(choice.end);
  } else if (token != nullptr && request_.token_timings) {
    const RequestEnd& now = choice.so_far();
    result["timings"] = {{"predicted_n", now.tokens}, {"predicted_ms", now.decode_seconds * 1e3}};
  }
  return result;
}

// Sends the role, the prompt that is repeated and its tokens before the first delta.
void Completion::send_begin(Choice& choice, const AnswerDelta& delta) {
  if (!request_.chat && !request_.echo && !request_.token_ids) return;
  AnswerDelta prompt;
  if (request_.echo)
    prompt.content = choice.text.substr(0, choice.text.size() - delta.content.size());
  Json first = chunk(choice, prompt, nullptr, false);
  Json& one = first["choices"][0];
  if (request_.chat) one["delta"] = {{"role", "assistant"}, {"content", ""}};
  if (request_.echo) one["logprobs"] = all_logprobs(choice);
  if (request_.token_ids) (request_.chat ? first : one)["prompt_token_ids"] = choice.prompt();
  reply_->event(event(first));
  choice.drop_scores();
}

// Sends a delta of a choice, or its end.
void Completion::send(Choice& choice, const AnswerDelta& delta, const ScoredToken* token,
                      bool last) {
  if (!request_.stream) return;
  start_events();
  if (!std::exchange(choice.begun, true)) send_begin(choice, delta);
  const bool wanted = token != nullptr &&
                      (request_.text.logprobs >= 0 || request_.token_timings || request_.token_ids);
  if (delta.empty() && !wanted && !last) return;
  reply_->event(event(chunk(choice, delta, token, last)));
}

// Returns the error for a text that failed after it was accepted, because its grammar cannot be
// followed or memory ran out.
ApiError Completion::text_error(const Error& error) const {
  if (error.code() != ErrorCode::limit) return api_error(error);
  const auto& grammar = request_.text.grammar;
  return {grammar && error.where() == grammar->where() ? 400 : 503, error.what()};
}

void Completion::choice_ended() {
  if (++ended_ == choices_.size()) finish();
}

void Completion::start_events() {
  if (std::exchange(streaming_, true)) return;
  HttpResponse head;
  head.type = kEventStream;
  reply_->start_events(std::move(head));
}

// Returns a choice of the answer as JSON text, which takes less memory than an object.
std::string Completion::whole_choice(const Choice& choice) const {
  Json one = {{"index", choice.index}, {"finish_reason", choice.reason}, {"logprobs", nullptr}};
  if (choice.stop()) one["stop_reason"] = *choice.stop();
  if (request_.chat) {
    one["message"] = chat_message(choice);
    if (request_.text.logprobs >= 0) one["logprobs"]["content"] = Json::array();
    for (const ScoredToken& token : choice.scored)
      one["logprobs"]["content"].push_back(chat_logprob(token));
  } else {
    one["text"] = choice.text;
    if (request_.scores_by_id) {
      for (const ScoredToken& token : choice.scored)
        one["completion_probabilities"].push_back(chat_logprob(token));
    } else {
      one["logprobs"] = all_logprobs(choice);
    }
    if (request_.token_ids) one["prompt_token_ids"] = choice.prompt();
  }
  if (request_.token_ids) one["token_ids"] = choice.ids;
  return text_of(one);
}

// Returns the timings by llama.cpp's names.
Json Completion::timings(const RequestEnd& end) {
  const int64_t read = end.prompt_tokens - end.cached_tokens;
  const auto rate = [](int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  };
  Json timings = {{"queue_ms", end.queue_seconds * 1e3},
                  {"cache_n", end.cached_tokens},
                  {"prompt_n", read},
                  {"prompt_ms", end.prompt_seconds * 1e3},
                  {"prompt_per_second", rate(read, end.prompt_seconds)},
                  {"predicted_n", end.tokens},
                  {"predicted_ms", end.decode_seconds * 1e3},
                  {"predicted_per_second", rate(end.tokens, end.decode_seconds)}};
  if (end.dropped > 0) timings["dropped_n"] = end.dropped;
  return timings;
}

std::string Completion::answer() const {
  Json rest = header(request_.chat ? "chat.completion" : "text_completion");
  rest["usage"] = usage();
  rest["timings"] = timings(choices_.front()->end);
  if (request_.chat && request_.token_ids) rest["prompt_token_ids"] = choices_.front()->prompt();
  std::string text = "{\"choices\":[";
  for (const auto& choice : choices_) {
    if (choice->index > 0) text += ',';
    text += std::exchange(choice->whole, {});
  }
  return text + "]," + text_of(rest).substr(1);
}

void Completion::finish() {
  const auto failed = std::find_if(choices_.begin(), choices_.end(),
                                   [](const auto& choice) { return choice->error.has_value(); });
  if (request_.stream && (streaming_ || failed == choices_.end())) {
    start_events();
    if (failed != choices_.end()) {
      reply_->event("data: " + text_error(*(*failed)->error).response().body + "\n\n");
    } else if (request_.include_usage) {
      Json last = header(request_.chat ? "chat.completion.chunk" : "text_completion");
      last["choices"] = Json::array();
      last["usage"] = usage();
      last["timings"] = timings(choices_.front()->end);
      reply_->event(event(last));
    }
    reply_->event("data: [DONE]\n\n");
    reply_->end_events();
    record_->whole = failed == choices_.end();
  } else if (failed != choices_.end()) {
    reply_->send(text_error(*(*failed)->error).response());
  } else {
    HttpResponse response;
    response.body = answer();
    reply_->send(std::move(response));
  }
  choices_.clear();
}

}  // namespace walsh
