// Answers a request. Its choices are texts of the scheduler; its answer is one object or a stream
// of events, as OpenAI's endpoints return it.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/json.h"
#include "schedule/scheduler.h"
#include "serve/api_error.h"
#include "serve/completion_request.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/request_log.h"
#include "serve/token_texts.h"
#include "text/stopped_text.h"

namespace walsh {

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  // The references must outlive the completion.
  Completion(CompletionRequest request, const Tokenizer& tokenizer, const TokenTexts& tokens,
             Metrics& metrics, std::shared_ptr<HttpReply> reply,
             std::shared_ptr<RequestRecord> record, std::string model_name);
  ~Completion();

  // Gives the choices to the scheduler, which answers them; they are cancelled when the client
  // disconnects. Throws ApiError, before anything is sent, if the scheduler does not accept all of
  // them.
  void start(Scheduler& scheduler);

 private:
  class Choice;

  void send_begin(Choice& choice, const AnswerDelta& delta);
  void send(Choice& choice, const AnswerDelta& delta, const ScoredToken* token, bool last);
  ApiError text_error(const Error& error) const;
  void choice_ended();
  void start_events();
  void finish();
  Json header(const char* object) const;
  static Json timings(const RequestEnd& end);
  Json usage() const;
  Json chunk(const Choice& choice, const AnswerDelta& delta, const ScoredToken* token,
             bool last) const;
  Json chat_delta(const Choice& choice, const AnswerDelta& delta) const;
  Json chat_message(const Choice& choice) const;
  std::string whole_choice(const Choice& choice) const;
  std::string answer() const;
  Json chat_logprob(const ScoredToken& token) const;
  void add_logprob(Json& lists, const ScoredToken& token, size_t offset) const;
  Json all_logprobs(const Choice& choice) const;

  const CompletionRequest request_;
  const Tokenizer& tokenizer_;
  const TokenTexts& tokens_;
  Metrics& metrics_;
  const std::shared_ptr<HttpReply> reply_;
  const std::shared_ptr<RequestRecord> record_;
  const std::string model_name_, id_;
  const int64_t created_;
  // The scheduler's thread uses these once they have been added.
  std::vector<std::shared_ptr<Choice>> choices_;
  size_t ended_ = 0;
  bool streaming_ = false;
  std::mutex mutex_;           // it guards ids_
  std::vector<uint64_t> ids_;  // the scheduler gave them
};

}  // namespace walsh
