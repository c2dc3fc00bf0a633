// Tests chat templates that replace the model's own, and llama.cpp's names of the flags.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/command.h"

namespace walsh {
namespace {

using testing::HasSubstr;

class TemplateOptionsOf : public CommandTest {
 protected:
  CommandResult say(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"run",  model(), "-n", "4",  "--temp",       "0",
                                          "-cnv", "-st",   "-q", "-p", "Name a river."};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  }
  // Returns the continuation of a prompt without a template.
  std::string plain(const std::string& prompt) const {
    return walsh({"run", model(), "--raw", "-n", "4", "--temp", "0", "-q", "--no-display-prompt",
                  "-p", prompt})
        .out;
  }
};

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}The {{ what | default('city') }} of{% endfor %}";

TEST_F(TemplateOptionsOf, RunTakesATemplateFromAFlagOrAFile) {
  spill(file("t.jinja"), kTemplate);
  const std::string city = plain("The city of"), river = plain("The river of");
  ASSERT_NE(city, river);
  EXPECT_EQ(say({"--chat-template", kTemplate}).out, city);
  EXPECT_EQ(say({"--chat-template-file", file("t.jinja"), "--jinja"}).out, city);
  EXPECT_EQ(say({"--chat-template-file", file("t.jinja"), "--chat-template-kwargs",
                 R"({"what": "river"})"})
                .out,
            river);
}

TEST_F(TemplateOptionsOf, AWrongOneIsRefusedBeforeTheWeightsAreRead) {
  spill(file("empty.jinja"), "");
  spill(file("wrong.jinja"), "{% if %}");
  const struct {
    std::vector<std::string> flags;
    int status;
    std::string place;
  } cases[] = {
      {{"--chat-template-file", file("empty.jinja")}, 3, "empty.jinja: is empty"},
      {{"--chat-template-file", file("wrong.jinja")}, 3, "wrong.jinja, line 1"},
      {{"--chat-template-file", file("absent")}, 5, "absent"},
      {{"--chat-template-file", file("")}, 3, file("")},
      {{"--chat-template", "{% if %}"}, 3, "--chat-template, line 1"},
      {{"--chat-template", ""}, 3, "--chat-template: is empty"},
      {{"--chat-template", "chatml"}, 3, "--chat-template: does not contain a template"},
      {{"--chat-template-kwargs", "[]"}, 2, "--chat-template-kwargs"},
      {{"--chat-template-kwargs", "{"}, 2, "--chat-template-kwargs"},
      {{"--chat-template", "x", "--chat-template-file", "y"}, 2, "--chat-template"},
  };
  for (const auto& [flags, status, place] : cases) {
    expect_error(say(flags), status, place);
    std::vector<std::string> serve = {"serve", model(), "--port", "0"};
    serve.insert(serve.end(), flags.begin(), flags.end());
    expect_error(walsh(serve), status, place);
  }
}

TEST_F(TemplateOptionsOf, TheModelMayBeAFlag) {
  const CommandResult r = walsh({"run", "-m", model(), "--raw", "-n", "4", "--temp", "0", "-q",
                                 "--ctx-size", "64", "--no-display-prompt", "-p", "The city of"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out, plain("The city of"));
  expect_error(walsh({"run", "-m", model(), model(), "-p", "a"}), 2, "command line");
  expect_error(walsh({"run", "-p", "a"}), 2, "MODEL is required");
}

TEST_F(TemplateOptionsOf, TheTokensOfAPromptAreShown) {
  const CommandResult r = walsh({"run", model(), "--raw", "-n", "1", "-q", "--verbose-prompt",
                                 "--color", "--temp", "0", "-p", "The city of"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("4 tokens of the prompt\n"));
  EXPECT_THAT(r.err, HasSubstr("' city'\n"));
  EXPECT_EQ(r.out.find('\033'), std::string::npos) << "colours are for terminals";
}

TEST_F(TemplateOptionsOf, BiasesChangeWhatIsChosen) {
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run",
                                          model(),
                                          "-n",
                                          "3",
                                          "-q",
                                          "-p",
                                          "The",
                                          "--temp",
                                          "0",
                                          "-no-cnv",
                                          "-c",
                                          "64",
                                          "--no-display-prompt"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments);
  };
  EXPECT_EQ(run({"--logit-bias", "36+100"}).out, "EEE\n");
  EXPECT_EQ(run({"--logit-bias", "36+100", "--logit-bias", "37+200"}).out, "FFF\n");
  EXPECT_EQ(run({"--logit-bias", "36+100", "--logit-bias", "37+200", "--spec", "ngram"}).out,
            "FFF\n");
  EXPECT_EQ(run({"--logit-bias", "36-inf", "--logit-bias", "37+100"}).out, "FFF\n");
  for (const char* wrong : {"36", "36*1", "+1", "36+", "36+x", "36+nan", "-1+1", "99999999999+1"})
    EXPECT_EQ(run({"--logit-bias", wrong}).status, 2) << wrong;
  expect_error(run({"--logit-bias", "8192+1"}), 2, "logit_bias");
  expect_error(run({"--logit-bias", "36+inf"}), 2, "logit_bias");
}

}  // namespace
}  // namespace walsh
