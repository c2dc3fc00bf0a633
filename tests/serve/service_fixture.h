// Makes a service with the embedded model, called without a network, for tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/json.h"
#include "schedule/texts.h"
#include "serve/service.h"
#include "text/stopped_text.h"
#include "threads.h"

namespace walsh::test {

inline constexpr const char* kServedModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";

// Records an answer without a network.
class Recorded : public HttpReply {
 public:
  void send(HttpResponse what) override {
    EXPECT_FALSE(done);
    response = std::move(what);
    done = true;
  }
  void start_events(HttpResponse what) override { response = std::move(what); }
  void event(std::string text) override { events.push_back(std::move(text)); }
  void end_events() override { done = true; }
  void on_gone(std::function<void()> what) override { gone = std::move(what); }

  Json json() const { return parse_json(response.body, "answer"); }
  // Returns the chunks of a stream but for the last one, which is [DONE].
  std::vector<Json> chunks() const {
    EXPECT_FALSE(events.empty());
    EXPECT_EQ(events.back(), "data: [DONE]\n\n");
    std::vector<Json> all;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
      EXPECT_TRUE(events[i].starts_with("data: ") && events[i].ends_with("\n\n")) << events[i];
      all.push_back(parse_json(std::string_view(events[i]).substr(6), "event"));
    }
    return all;
  }

  HttpResponse response;
  std::vector<std::string> events;
  std::function<void()> gone;
  bool done = false;
};

class ServiceTest : public testing::Test {
 protected:
  explicit ServiceTest(const std::string& model = kServedModel)
      : loaded_(load_model(model, nullptr, load_options())) {
    SchedulerOptions options;
    options.positions = 256;
    options.running = 4;
    options.waiting = 8;
    options.step_tokens = 64;
    scheduler_ = std::make_unique<Scheduler>(loaded_.model, options);
    names_.model_name = "tiny";
    service_ = make({});
  }

  LoadOptions load_options() {
    LoadOptions options;
    options.pool = &pool_;
    return options;
  }
  std::unique_ptr<Service> make(ChatPrompt chat) {
    return std::make_unique<Service>(loaded_, *scheduler_, names_, std::move(chat));
  }

  std::shared_ptr<Recorded> begin(const std::string& method, const std::string& path,
                                  const std::string& body = "",
                                  std::map<std::string, std::string> headers = {}) {
    const auto reply = std::make_shared<Recorded>();
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = std::move(headers);
    request.headers.emplace("host", "127.0.0.1:8080");
    service_->handle(request, reply);
    return reply;
  }
  std::shared_ptr<Recorded> ask(const std::string& method, const std::string& path,
                                const std::string& body = "",
                                std::map<std::string, std::string> headers = {}) {
    const auto reply = begin(method, path, body, std::move(headers));
    while (!reply->done && scheduler_->step()) {
    }
    EXPECT_TRUE(reply->done);
    return reply;
  }
  std::shared_ptr<Recorded> post(const std::string& path, const Json& body) {
    return ask("POST", path, body.dump());
  }

  std::string greedy_text(const std::string& prompt, int64_t tokens) {
    TextRequest request;
    request.prompt = loaded_.tokenizer.encode(prompt, true);
    request.sampler.temperature = 0;
    request.max_tokens = tokens;
    request.stop_ids = loaded_.generation.stop_ids();
    StoppedText text(loaded_.tokenizer, request.prompt, {});
    std::string all;
    for (const int32_t token : plain_text(loaded_.model, request, 256))
      all += text.push(token);
    return all + text.finish();
  }

  ThreadPool pool_{test::kThreads};
  LoadedModel loaded_;
  ServiceOptions names_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Service> service_;
};

}  // namespace walsh::test
