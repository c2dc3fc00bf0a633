#include "serve/household.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "api/prefix_files.h"
#include "io/json.h"
#include "temporary_folder.h"
#include "threads.h"
#include "walsh/error.h"

namespace walsh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModel = WALSH_SOURCE_DIR "/models/walsh-tiny-13m";

// Records an answer that comes on any thread.
class Answer : public HttpReply {
 public:
  void send(HttpResponse what) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(what);
    done_ = true;
    changed_.notify_all();
  }
  void start_events(HttpResponse what) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(what);
  }
  void event(std::string text) override {
    const std::lock_guard lock(mutex_);
    response_.body += text;
    changed_.notify_all();
  }
  void end_events() override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void on_gone(std::function<void()> gone) override {
    const std::lock_guard lock(mutex_);
    gone_.push_back(std::move(gone));
  }

  void leave() {
    std::vector<std::function<void()>> told;
    {
      const std::lock_guard lock(mutex_);
      std::swap(told, gone_);
    }
    for (const auto& gone : told)
      gone();
  }
  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }
  HttpResponse wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return response_;
  }
  void wait_for_event() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ || !response_.body.empty(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  HttpResponse response_;
  std::vector<std::function<void()>> gone_;
  bool done_ = false;
};

// Three models, which are the same one under three names.
class HouseholdTest : public testing::Test {
 protected:
  ~HouseholdTest() override {
    if (!household_) return;
    household_->drain();
    keeper_.join();
    for (const auto& answer : answers_)
      answer->leave();
  }

  void start() {
    options.plan = [](const ModelPlace&) { return 10; };
    options.clock = [this] { return time.load(); };
    options.most_bytes = most_bytes;
    const auto load = [this](const ModelPlace& place, std::shared_ptr<Door> door,
                             std::shared_ptr<Metrics> metrics) {
      if (place.name == "broken") throw Error(ErrorCode::bad_input, place.path, "is no model");
      ServedModelOptions served;
      served.threads = test::kThreads;
      served.load = [](ThreadPool& pool) {
        LoadOptions load;
        load.pool = &pool;
        return load_model(kModel, nullptr, load);
      };
      served.scheduler.positions = 256;
      served.scheduler.running = 4;
      if (!cache_folder.empty())
        served.open_store = [this, name = place.name](const LoadedModel& model) {
          const auto note = [](const std::string& text) { ADD_FAILURE() << text; };
          return open_prefix_files(model, 256, prefix_folder(cache_folder, name), 1 << 24, note);
        };
      served.service.model_name = place.name;
      return std::make_unique<ServedModel>(served, std::move(door), std::move(metrics));
    };
    DoorOptions door;
    door.api_keys = keys;
    household_ = std::make_unique<Household>(
        std::vector<ModelPlace>{{"a", kModel, 7}, {"org/b", kModel, 7}, {"broken", "/nowhere", 7}},
        options, load, door);
    keeper_ = std::thread([this] { household_->run(); });
  }

  std::shared_ptr<Answer> begin(const std::string& method, const std::string& path,
                                const std::string& body = "", const std::string& query = "",
                                const std::string& key = "") {
    if (!household_) start();
    HttpRequest request;
    request.method = method;
    request.path = path;
    request.query = query;
    request.body = body;
    request.headers = {{"host", "localhost"}, {"authorization", "Bearer " + key}};
    answers_.push_back(std::make_shared<Answer>());
    household_->handle(request, answers_.back());
    return answers_.back();
  }
  HttpResponse get(const std::string& path, const std::string& query = "") {
    return begin("GET", path, "", query)->wait();
  }
  HttpResponse post(const std::string& path, const Json& body) {
    return begin("POST", path, body.dump())->wait();
  }
  static Json text_of(const std::string& model) {
    return {{"model", model}, {"prompt", "The city"}, {"max_tokens", 2}, {"temperature", 0}};
  }
  static Json json(const HttpResponse& response) { return parse_json(response.body, "answer"); }
  // Returns the names of the models in a state.
  std::vector<std::string> names(const std::string& state) {
    std::vector<std::string> names;
    const Json list = json(get("/v1/models"));
    for (const Json& model : list["data"])
      if (model["status"]["value"] == state) names.push_back(model["id"]);
    return names;
  }

  PoolOptions options;
  uint64_t most_bytes = 100;
  std::vector<std::string> keys;
  std::string cache_folder;  // of prefixes; empty: they are not kept in files
  std::atomic<double> time{1000};
  std::vector<std::shared_ptr<Answer>> answers_;
  std::unique_ptr<Household> household_;
  std::thread keeper_;
};

TEST_F(HouseholdTest, TheModelOfARequestAnswersInEveryInterface) {
  const Json message = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  for (const auto& [path, body] : std::map<std::string, Json>{
           {"/v1/completions", text_of("org/b")},
           {"/completion", text_of("org/b")},
           {"/v1/chat/completions", {{"model", "org/b"}, {"messages", message}, {"max_tokens", 2}}},
           {"/v1/messages", {{"model", "org/b"}, {"messages", message}, {"max_tokens", 2}}},
           {"/v1/responses", {{"model", "org/b"}, {"input", "Hi"}, {"max_output_tokens", 2}}},
           {"/v1/embeddings", {{"model", "org/b"}, {"input", "Hi"}}},
           {"/api/generate",
            {{"model", "org/b:latest"},
             {"prompt", "Hi"},
             {"stream", false},
             {"options", {{"num_predict", 2}}}}}}) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 200) << path << " " << response.body;
    EXPECT_EQ(json(response)["model"], "org/b") << path;
  }
  EXPECT_EQ(json(get("/props", "model=org%2Fb"))["model_alias"], "org/b");
  EXPECT_EQ(post("/tokenize", {{"model", "org/b"}, {"content", "Hi"}}).status, 200);
  EXPECT_THAT(names("loaded"), ElementsAre("org/b"));
}

TEST_F(HouseholdTest, AnUnknownModelIsNotFoundInTheFormOfTheInterface) {
  for (const std::string name : {"none", "../a", "a/../a", "A"}) {
    const HttpResponse response = post("/v1/completions", text_of(name));
    EXPECT_EQ(response.status, 404);
    EXPECT_EQ(json(response)["error"]["code"], "model_not_found");
    EXPECT_EQ(json(response)["error"]["param"], "model");
  }
  EXPECT_EQ(post("/v1/completions", text_of(std::string("a\0", 2))).status, 404);
  const HttpResponse longest = post("/v1/completions", text_of(std::string(1 << 20, 'x')));
  EXPECT_EQ(longest.status, 404);
  EXPECT_LT(longest.body.size(), 1000u);
  const Json body = {{"model", "none"}, {"max_tokens", 1}};
  EXPECT_EQ(json(post("/v1/messages", body))["error"]["type"], "not_found_error");
  EXPECT_TRUE(json(post("/api/chat", body))["error"].is_string());
  EXPECT_EQ(get("/v1/models/none").status, 404);
  EXPECT_EQ(get("/v1/models/org%2Fb").status, 200);
  const HttpResponse nameless = post("/v1/completions", {{"prompt", "x"}});
  EXPECT_EQ(nameless.status, 400);
  EXPECT_THAT(nameless.body, HasSubstr("a, org/b, broken"));
}

TEST_F(HouseholdTest, ListsAllModelsWithTheirStates) {
  EXPECT_EQ(post("/v1/completions", text_of("a")).status, 200);
  const HttpResponse failed = post("/v1/completions", text_of("broken"));
  EXPECT_EQ(failed.status, 500);
  EXPECT_THAT(failed.body, HasSubstr("is no model"));
  const Json models = json(get("/models"))["data"];
  ASSERT_EQ(models.size(), 3u);
  EXPECT_EQ(models[0]["status"], Json({{"value", "loaded"}}));
  EXPECT_GT(models[0]["meta"]["n_vocab"], 0);
  EXPECT_EQ(models[1]["status"], Json({{"value", "unloaded"}}));
  EXPECT_EQ(models[2]["status"]["value"], "failed");
  EXPECT_EQ(models[2]["status"]["failed"], true);
  EXPECT_THAT(models[2]["status"]["error"].get<std::string>(), HasSubstr("is no model"));
  const Json tags = json(get("/api/tags"))["models"];
  ASSERT_EQ(tags.size(), 3u);
  EXPECT_EQ(tags[1]["size"], 7);
  const Json running = json(get("/api/ps"))["models"];
  ASSERT_EQ(running.size(), 1u);
  EXPECT_EQ(running[0]["name"], "a");
  EXPECT_NE(running[0]["expires_at"], kNeverUnloaded);
  EXPECT_EQ(json(get("/props"))["role"], "router");
}

TEST_F(HouseholdTest, HealthAndMetricsTellWhichModelsAreLoaded) {
  keys = {"secret"};
  EXPECT_EQ(begin("GET", "/health")->wait().body, R"({"status":"ok"})");
  const auto ask = [&](const std::string& method, const std::string& path,
                       const std::string& body = "") {
    return begin(method, path, body, "", "secret")->wait();
  };
  EXPECT_EQ(ask("POST", "/v1/completions", text_of("a").dump()).status, 200);
  EXPECT_EQ(json(ask("GET", "/health"))["loaded"], Json::array({"a"}));
  EXPECT_EQ(ask("POST", "/models/unload", R"({"model": "a"})").status, 200);
  while (json(ask("GET", "/health"))["loaded"] != Json::array())
    std::this_thread::yield();
  EXPECT_EQ(ask("POST", "/models/load", R"({"model": "org/b"})").status, 200);
  const std::string text = ask("GET", "/metrics").body;
  EXPECT_THAT(text, HasSubstr("walsh:model_loaded{model=\"a\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("walsh:model_loaded{model=\"org/b\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("walsh:tokens_predicted_total{model=\"a\"} 2\n"))
      << "what an unloaded model has counted stays";
  EXPECT_THAT(text, HasSubstr("walsh:queue_seconds_count{model=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("walsh:queue_seconds_bucket{model=\"a\",le=\"+Inf\"} 1\n"));
}

TEST_F(HouseholdTest, AModelStaysUntilItsAnswersHaveEnded) {
  most_bytes = 10;
  Json long_text = text_of("a");
  long_text.update({{"max_tokens", 200}, {"ignore_eos", true}, {"stream", true}});
  const auto streamed = begin("POST", "/v1/completions", long_text.dump());
  streamed->wait_for_event();
  const auto other = begin("POST", "/v1/completions", text_of("org/b").dump());
  EXPECT_EQ(streamed->wait().status, 200);
  EXPECT_EQ(other->wait().status, 200);
  EXPECT_THAT(names("loaded"), ElementsAre("org/b"));
}

TEST_F(HouseholdTest, ClientsThatLeaveWhileAModelWaitsAreForgotten) {
  most_bytes = 10;
  Json long_text = text_of("a");
  long_text.update({{"max_tokens", 200}, {"ignore_eos", true}, {"stream", true}});
  const auto streamed = begin("POST", "/v1/completions", long_text.dump());
  streamed->wait_for_event();
  const auto other = begin("POST", "/v1/completions", text_of("org/b").dump());
  other->leave();
  EXPECT_EQ(other->wait().status, 503);
  streamed->wait();
  EXPECT_THAT(names("loaded"), ElementsAre("a"));
}

TEST_F(HouseholdTest, ManyRequestsForMoreModelsThanFitAreAllAnswered) {
  most_bytes = 10;
  options.waiting = 1000;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 60; ++i)
    answers.push_back(begin("POST", "/v1/completions", text_of(i % 2 == 0 ? "a" : "org/b").dump()));
  for (const auto& answer : answers)
    EXPECT_EQ(answer->wait().status, 200);
}

TEST_F(HouseholdTest, OllamaUnloadsAModelAtOnceWhereItIsAskedTo) {
  EXPECT_EQ(post("/api/generate", {{"model", "a"}, {"keep_alive", 0}}).status, 200);
  while (!names("loaded").empty())
    std::this_thread::yield();
  EXPECT_EQ(post("/api/show", {{"model", "a"}}).status, 200);
  EXPECT_TRUE(names("loaded").empty()) << "what it is was known";
}

TEST_F(HouseholdTest, AModelThatWasUnloadedHasItsOwnPrefixesAgain) {
  const test::TemporaryFolder folder;
  cache_folder = folder.path();
  most_bytes = 10;
  const auto cached = [&](const std::string& model, const char* city) {
    std::string prompt;
    for (int i = 0; i < 30; ++i)
      prompt += std::string(" the river of ") + city;
    Json body = text_of(model);
    body["prompt"] = prompt;
    const Json answer = json(post("/v1/completions", body));
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached("a", "London"), 0);
  EXPECT_EQ(cached("org/b", "Paris"), 0);
  EXPECT_THAT(folder.names(), ElementsAre("a", "org%2Fb"));
  EXPECT_GT(cached("a", "London"), 32);
  EXPECT_LT(cached("org/b", "London"), 32) << "that is in the folder of the other model";
  EXPECT_GT(cached("a", "London"), 32);
}

TEST_F(HouseholdTest, AtTheEndRequestsThatWaitAreAnswered) {
  most_bytes = 10;
  Json long_text = text_of("a");
  long_text.update({{"max_tokens", 200}, {"ignore_eos", true}, {"stream", true}});
  const auto streamed = begin("POST", "/v1/completions", long_text.dump());
  streamed->wait_for_event();
  const auto waiting = begin("POST", "/v1/completions", text_of("org/b").dump());
  household_->drain();
  EXPECT_EQ(waiting->wait().status, 503);
  EXPECT_EQ(begin("POST", "/v1/completions", text_of("a").dump())->wait().status, 503);
  EXPECT_EQ(get("/health").status, 503);
  EXPECT_EQ(streamed->wait().status, 200) << "running answers go on";
}

}  // namespace
}  // namespace walsh
