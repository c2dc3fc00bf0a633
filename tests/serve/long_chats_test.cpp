// Tests the places of texts, texts longer than the context, and limits of reasoning, in all
// interfaces.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "schedule/prefix_store.h"
#include "serve/service_fixture.h"
#include "temporary_folder.h"

namespace walsh {
namespace {

using test::ServiceTest;
using Headers = std::map<std::string, std::string>;

class LongChatsTest : public ServiceTest {
 protected:
  // Gives the model a template that opens the reasoning in the prompt.
  void think() {
    const std::string source =
        "{% for m in messages %}{{ m.content }}\n{% endfor %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>"
        "{% else %}<think>{% endif %}";
    loaded_.chat.emplace(ChatTemplate::Named{{"default", source}}, ChatTemplate::Named{}, "test");
    service_ = make(make_chat_prompt(*loaded_.chat));
  }
  static Json chat(int64_t tokens) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", "The river"}}})},
            {"temperature", 0},
            {"max_tokens", tokens}};
  }
  // Returns the tokens of the reasoning in front of an answer.
  static int64_t reasoning_of(const Json& reply) {
    EXPECT_FALSE(reply["choices"][0]["message"]["content"].get<std::string>().empty())
        << reply.dump(1);
    return reply["usage"]["completion_tokens_details"]["reasoning_tokens"].get<int64_t>();
  }
  void with_store(const std::string& folder) {
    PrefixStore::Options files;
    files.folder = folder;
    store_ = std::make_unique<PrefixStore>(files);
    SchedulerOptions options;
    options.positions = 256;
    options.running = 4;
    options.store = store_.get();
    service_.reset();
    scheduler_ = std::make_unique<Scheduler>(loaded_.model, options);
    service_ = make({});
  }

  // What reads the store ends before it.
  ~LongChatsTest() override {
    service_.reset();
    scheduler_.reset();
  }
  std::unique_ptr<PrefixStore> store_;
};

TEST_F(LongChatsTest, ReasoningEndsAfterItsBudget) {
  think();
  const auto mark = static_cast<int64_t>(loaded_.tokenizer.encode("</think>", false).size());
  for (const char* field : {"reasoning_budget", "thinking_budget_tokens", "thinking_budget"}) {
    Json body = chat(40);
    body[field] = 5;
    EXPECT_EQ(reasoning_of(post("/v1/chat/completions", body)->json()), 5 + mark) << field;
  }
  const Json free = post("/v1/chat/completions", chat(40))->json();
  EXPECT_EQ(free["usage"]["completion_tokens_details"]["reasoning_tokens"], 40);
  Json none = chat(40);
  none["reasoning_budget"] = -2;
  EXPECT_EQ(post("/v1/chat/completions", none)->response.status, 400);
}

TEST_F(LongChatsTest, TheServersBudgetHoldsWhereARequestHasNone) {
  names_.reasoning_budget = 3;
  think();
  const auto mark = static_cast<int64_t>(loaded_.tokenizer.encode("</think>", false).size());
  EXPECT_EQ(reasoning_of(post("/v1/chat/completions", chat(40))->json()), 3 + mark);
  Json body = chat(40);
  body["reasoning_budget"] = -1;
  EXPECT_EQ(post("/v1/chat/completions", body)
                ->json()["usage"]["completion_tokens_details"]["reasoning_tokens"],
            40);
}

TEST_F(LongChatsTest, AllInterfacesHaveTheBudget) {
  think();
  Json messages = chat(40);
  messages["thinking"] = {{"type", "enabled"}, {"budget_tokens", 5}};
  const Json of_messages = post("/v1/messages", messages)->json();
  EXPECT_EQ(of_messages["content"].size(), 2u) << of_messages.dump(1);
  messages["thinking"]["budget_tokens"] = "many";
  const auto refused = post("/v1/messages", messages);
  EXPECT_EQ(refused->response.status, 400);
  EXPECT_NE(refused->response.body.find("thinking.budget_tokens"), std::string::npos);

  const Json responses = {{"input", "The river"},
                          {"temperature", 0},
                          {"max_output_tokens", 40},
                          {"reasoning_budget", 5}};
  const Json of_responses = post("/v1/responses", responses)->json();
  EXPECT_NE(of_responses.dump().find("output_text"), std::string::npos) << of_responses.dump(1);

  Json ollama = chat(40);
  ollama["stream"] = false;
  ollama["options"] = {{"reasoning_budget", 5}, {"temperature", 0}, {"num_predict", 40}};
  const Json of_ollama = post("/api/chat", ollama)->json();
  EXPECT_FALSE(of_ollama["message"]["thinking"].get<std::string>().empty());
  EXPECT_FALSE(of_ollama["message"]["content"].get<std::string>().empty());
}

TEST_F(LongChatsTest, ATextThatShiftsGoesOnBeyondTheContext) {
  Json body = {{"prompt", "The river"}, {"temperature", 0},      {"max_tokens", 400},
               {"ignore_eos", true},    {"context_shift", true}, {"n_keep", 4}};
  const Json shifted = post("/v1/completions", body)->json();
  EXPECT_EQ(shifted["usage"]["completion_tokens"], 400) << shifted.dump(1);
  EXPECT_EQ(shifted["choices"][0]["finish_reason"], "length");
  EXPECT_GT(shifted["timings"]["dropped_n"], 100);
  body["context_shift"] = false;
  EXPECT_LT(post("/v1/completions", body)->json()["usage"]["completion_tokens"], 256);
  std::string prompt;
  for (int i = 0; i < 300; ++i)
    prompt += " river";
  body["prompt"] = prompt;
  body["max_tokens"] = 2;
  EXPECT_EQ(post("/v1/completions", body)->response.status, 400);
  body["context_shift"] = true;
  EXPECT_EQ(post("/v1/completions", body)->json()["usage"]["completion_tokens"], 2);
  names_.shifts = true;
  service_ = make({});
  body.erase("context_shift");
  EXPECT_EQ(post("/completion", body)->json()["truncated"], true);
}

TEST_F(LongChatsTest, SlotsShowWhatIsGenerated) {
  const auto running =
      begin("POST", "/completion", R"({"prompt": "The river", "n_predict": 20, "id_slot": 2})");
  scheduler_->step();
  scheduler_->step();
  const Json slots = ask("GET", "/slots")->json();
  ASSERT_EQ(slots.size(), 4u);
  EXPECT_EQ(slots[2]["id"], 2);
  EXPECT_EQ(slots[2]["is_processing"], true) << slots.dump(1);
  EXPECT_EQ(slots[2]["n_ctx"], 256);
  EXPECT_EQ(slots[2]["params"]["n_predict"], 20);
  ASSERT_EQ(slots[2]["next_token"].size(), 1u);
  EXPECT_EQ(slots[2]["next_token"][0]["n_remain"].get<int>() +
                slots[2]["next_token"][0]["n_decoded"].get<int>(),
            20);
  EXPECT_NE(slots[2]["prompt"].get<std::string>().find("The river"), std::string::npos);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_FALSE(slots[0].contains("prompt"));
  while (!running->done)
    scheduler_->step();
}

TEST_F(LongChatsTest, SlotsOfOtherKeysShowNoTexts) {
  names_.api_keys = {"first", "second"};
  service_ = make({});
  const auto running = begin("POST", "/completion", R"({"prompt": "The river", "n_predict": 20})",
                             {{"authorization", "Bearer first"}});
  scheduler_->step();
  scheduler_->step();
  const auto seen = [&](const std::string& key) {
    return ask("GET", "/slots", "", {{"authorization", "Bearer " + key}})->json()[0];
  };
  EXPECT_TRUE(seen("first").contains("prompt"));
  const Json other = seen("second");
  EXPECT_EQ(other["is_processing"], true);
  EXPECT_FALSE(other.contains("prompt") || other.contains("params")) << other.dump(1);
  while (!running->done)
    scheduler_->step();
}

TEST_F(LongChatsTest, SlotsCanBeTurnedOff) {
  names_.slots = false;
  service_ = make({});
  EXPECT_EQ(ask("GET", "/slots")->response.status, 501);
  EXPECT_EQ(ask("POST", "/slots/0", "{}")->response.status, 501);
}

TEST_F(LongChatsTest, WhatASlotHasLeftIsSavedRestoredAndErased) {
  const test::TemporaryFolder folder;
  with_store(folder.path());
  const auto act = [&](const std::string& slot, const std::string& action,
                       const std::string& name) {
    const auto reply = std::make_shared<test::Recorded>();
    HttpRequest request;
    request.method = "POST";
    request.path = "/slots/" + slot;
    request.query = "action=" + action;
    request.body = Json{{"filename", name}}.dump();
    request.headers.emplace("host", "127.0.0.1:8080");
    service_->handle(request, reply);
    while (!reply->done && scheduler_->step()) {
    }
    EXPECT_TRUE(reply->done);
    return reply;
  };
  const auto known = [&](const std::string& prompt) {
    const Json body = {{"prompt", prompt}, {"n_predict", 4}, {"id_slot", 1}, {"temperature", 0}};
    return post("/completion", body)->json()["timings"]["cache_n"].get<int64_t>();
  };
  const std::string prompt = "There is a river in the city of London and a bridge over it.";
  EXPECT_EQ(known(prompt), 0);
  const Json saved = act("1", "save", "london.bin")->json();
  EXPECT_GT(saved["n_saved"], 8) << saved.dump(1);
  EXPECT_GT(saved["n_written"], 1000);
  EXPECT_EQ(saved["filename"], "london.bin");
  EXPECT_EQ(act("1", "erase", "")->json()["n_erased"], saved["n_saved"]);
  EXPECT_EQ(known(prompt), 0);
  act("1", "erase", "");
  const Json restored = act("0", "restore", "london.bin")->json();
  EXPECT_EQ(restored["n_restored"], saved["n_saved"]);
  EXPECT_EQ(restored["n_read"], saved["n_written"]);
  EXPECT_GT(known(prompt), 8);
  for (const auto& [slot, action, name] :
       std::vector<std::array<std::string, 3>>{{"0", "restore", "absent.bin"},
                                               {"0", "restore", "../london.bin"},
                                               {"0", "save", ""},
                                               {"9", "save", "x"},
                                               {"x", "save", "x"},
                                               {"0", "copy", "x"}})
    EXPECT_EQ(act(slot, action, name)->response.status, 400) << slot << action << name;
  std::filesystem::remove_all(folder.path());
  const auto unwritten = act("1", "save", "london.bin");
  EXPECT_EQ(unwritten->response.status, 500);
  for (const auto& reply : {unwritten, act("0", "restore", "london.bin")})
    EXPECT_EQ(reply->response.body.find(folder.path()), std::string::npos) << reply->response.body;
}

}  // namespace
}  // namespace walsh
