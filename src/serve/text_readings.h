// Has the texts of one request read, which are not continued, for embeddings or for a ranking of
// documents. The scheduler gets a few at a time, so that a long list keeps no other request
// waiting.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "schedule/scheduler.h"
#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/request_log.h"

namespace walsh {

class TextReadings : public std::enable_shared_from_this<TextReadings> {
 public:
  struct Request {
    std::vector<std::vector<int32_t>> prompts;
    Reading reading = Reading::last;
    std::string owner;
    // Receives the values that were read of a text.
    std::function<void(size_t index, std::span<const float> values)> take;
    // Makes the answer when all have been read; `tokens` counts those of all prompts.
    std::function<HttpResponse(int64_t tokens)> answer;
  };

  TextReadings(Request request, Scheduler& scheduler, Metrics& metrics,
               std::shared_ptr<HttpReply> reply, std::shared_ptr<RequestRecord> record);

  // Throws ApiError if the scheduler accepts none. The texts are cancelled when the client
  // disconnects.
  void start();

 private:
  class Text;

  void add_more();
  void cancel();
  void ended(const RequestEnd& end, const Error* error);
  void fail(const ApiError& error);
  void finish();

  Request request_;
  Scheduler& scheduler_;
  Metrics& metrics_;
  const std::shared_ptr<HttpReply> reply_;
  const std::shared_ptr<RequestRecord> record_;
  const size_t together_;
  std::mutex mutex_;           // it guards what follows
  std::vector<uint64_t> ids_;  // the scheduler gave them to the texts that were added
  size_t ended_ = 0;
  int64_t tokens_ = 0;
  bool answered_ = false;
  bool left_ = false;  // the client has disconnected
};

}  // namespace walsh
