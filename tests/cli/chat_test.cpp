// Tests `walsh run` as a conversation: messages, saved conversations, settings and commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/pseudo_terminal.h"

namespace walsh {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class ChatCommand : public CommandTest {
 protected:
  CommandResult say(const std::string& lines, const std::vector<std::string>& more = {}) const {
    spill(file("lines"), lines);
    std::vector<std::string> arguments = {"run",    model(), "-n",       "6",
                                          "--temp", "0",     "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return walsh(arguments, "", "< " + quoted(file("lines")));
  }
  // Returns the messages that a conversation has saved as f.
  Json messages() const { return Json::parse(slurp(file("f")))["messages"]; }
  std::string save() const { return "/save " + file("f") + "\n"; }
  static std::string content(const Json& message) { return message["content"]; }
};

TEST_F(ChatCommand, AnswersBuildOnWhatWasSaid) {
  const CommandResult r = say("The city of\nThe river\n" + save());
  EXPECT_EQ(r.status, 0) << r.err;
  const Json all = messages();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], (Json{{"role", "user"}, {"content", "The city of"}}));
  EXPECT_EQ(all[2], (Json{{"role", "user"}, {"content", "The river"}}));
  EXPECT_EQ(all[3]["role"], "assistant");
  EXPECT_EQ(r.out, content(all[1]) + "\n" + content(all[3]) + "\n");
  EXPECT_THAT(r.err, HasSubstr(" known)")) << "the first turn is not evaluated again";
  EXPECT_THAT(say("The river\n").err, Not(HasSubstr(" known)")));

  spill(file("half"), Json{{"messages", {all[0], all[1]}}}.dump());
  const CommandResult loaded = say("/load " + file("half") + "\nThe river\n");
  EXPECT_EQ(loaded.out, content(all[3]) + "\n") << loaded.err;
}

TEST_F(ChatCommand, ThePromptMayBeTheFirstMessage) {
  const std::string one = say("The city of\n", {"-q"}).out;
  EXPECT_EQ(say("", {"-cnv", "-p", "The city of", "-q"}).out, one);
  EXPECT_EQ(say("never\n", {"-cnv", "-p", "The city of", "-st", "-q"}).out, one);
  EXPECT_EQ(say("The city of\nnever\n", {"-st", "-q"}).out, one);
  EXPECT_EQ(say("never\n", {"-p", "The city of", "-q"}).out, one) << "and the only one";
  EXPECT_NE(say("", {"-p", "The city of", "-q", "--raw"}).out, one);
}

TEST_F(ChatCommand, TheSystemPromptStaysUntilAnotherOneComes) {
  const CommandResult r = say("Hello\n/clear\n" + save(), {"-sys", "Be brief."});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(messages(), Json::parse(R"([{"role": "system", "content": "Be brief."}])"));
  say("Hello\n/system Rhyme.\nHello\n" + save());
  ASSERT_EQ(messages().size(), 3u);
  EXPECT_EQ(content(messages()[0]), "Rhyme.");
}

TEST_F(ChatCommand, SettingsHoldFromThenOn) {
  const CommandResult r = say("/set n 3\nThe city of\n/set n 5\n/retry\n" + save());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("generated 3 tokens"));
  EXPECT_THAT(r.err, HasSubstr("generated 5 tokens"));
  EXPECT_EQ(messages().size(), 2u) << "the second answer replaces the first";
}

TEST_F(ChatCommand, AnswersEndWhereTheModelEndsThem) {
  const std::string folder = copied_model();  // every token of it but the first ends a text
  const std::vector<std::string> run = {"run", folder, "--temp", "0",  "--device",
                                        "cpu", "-c",   "200",    "-p", "Hello"};
  const CommandResult long_one = walsh(run);
  EXPECT_THAT(long_one.err, testing::AnyOf(HasSubstr("end of text"), HasSubstr("context full")))
      << "not after 128 tokens";
  EXPECT_THAT(long_one.err, Not(HasSubstr("-n reached")));
}

TEST_F(ChatCommand, AnAnswerThatWasCutOffCanBeContinued) {
  say("/set n 12\nThe city of\n" + save());
  const std::string whole = content(messages()[1]);
  const CommandResult r = say("The city of\n/continue\n" + save());
  EXPECT_EQ(r.status, 0) << r.err;
  ASSERT_EQ(messages().size(), 2u);
  EXPECT_EQ(content(messages()[1]), whole);
}

TEST_F(ChatCommand, CommandsSayWhatTheyDid) {
  const CommandResult r =
      say("/system Rhyme.\n/set temp 0.5\n/clear\n" + save() + "/load " + file("f") + "\n/help\n");
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* part : {"system prompt is set", "temp is 0.5", "starts over",
                           "saved 1 message in", "/continue", "/retry"})
    EXPECT_THAT(r.err, HasSubstr(part));
}

TEST_F(ChatCommand, TheOldestTurnsGoWhenTheContextIsFull) {
  std::string lines;
  for (int turn = 0; turn < 8; ++turn)
    lines += fmt::format("What is the city number {} of the country called?\n", turn);
  const CommandResult r = say(lines + save(), {"-c", "96", "-sys", "Be brief."});
  EXPECT_EQ(r.status, 0) << r.err;
  const size_t told = r.err.find("are forgotten");
  ASSERT_NE(told, std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("are forgotten", told + 1), std::string::npos) << "once: " << r.err;
  EXPECT_EQ(messages().size(), 17u) << "what is kept is the whole conversation";
}

TEST_F(ChatCommand, AConversationFromAFileMayHaveManyTurns) {
  Json all = Json::array();
  for (int turn = 0; turn < 5000; ++turn) {
    all.push_back({{"role", "user"}, {"content", "Turn " + std::to_string(turn)}});
    all.push_back({{"role", "assistant"}, {"content", "Yes."}});
  }
  spill(file("long"), Json({{"messages", all}}).dump());
  const CommandResult r = say("/load " + file("long") + "\nHello\n" + save(), {"-c", "96"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("are forgotten"));
  EXPECT_EQ(messages().size(), 10002u);
}

TEST_F(ChatCommand, BytesThatAreNoTextDoNotStopIt) {
  const CommandResult r = say("caf\xe9\n" + save());
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(content(messages()[0]), "caf\uFFFD");
}

TEST_F(ChatCommand, AnAnswerGoesOnWhereTheContextIsFull) {
  const CommandResult r =
      say("The city of\n/set n 100\nThe river\n" + save(), {"-c", "96", "--ignore-eos"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("are forgotten"));
  EXPECT_EQ(messages().size(), 4u);
}

TEST_F(ChatCommand, LinesMayEndAsOnWindows) {
  EXPECT_EQ(say("Hello\r\n" + save() + "/exit\r\nnever\r\n").status, 0);
  ASSERT_EQ(messages().size(), 2u);
  EXPECT_EQ(content(messages()[0]), "Hello");
}

TEST_F(ChatCommand, TextsOfSeveralLines) {
  say("one\\\ntwo\n/clear\n");
  say("one\\\ntwo\n\"\"\"three\n\nfour\"\"\"\n//five\n" + save());
  const Json all = messages();
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(content(all[0]), "one\ntwo");
  EXPECT_EQ(content(all[2]), "three\n\nfour");
  EXPECT_EQ(content(all[4]), "/five");
}

TEST_F(ChatCommand, WhatIsWrongIsSaidAndDoesNotEndIt) {
  spill(file("broken"), R"({"messages": [{"role": "user"}]})");
  const struct {
    std::string line, where;
    int status;
  } cases[] = {
      {"/sett temp 1", "/sett", 2},
      {"/set temp", "/set", 2},
      {"/set temp x", "/set: --temp: x is not a number", 2},
      {"/set temp -1", "temperature", 2},
      {"/set bogus 1", "bogus", 2},
      {"/set help 1", "help", 2},
      {"/save", "/save", 2},
      {"/load " + file("absent"), "absent", 5},
      {"/retry", "/retry", 2},
      {"/load " + file("broken"), "messages[0]", 3},
      {"/load " + file("lines"), "lines", 3},
  };
  for (const auto& [line, where, status] : cases) {
    const CommandResult r = say(line + "\nHello\n" + save());
    EXPECT_EQ(r.status, status) << line << "\n" << r.err;
    EXPECT_THAT(r.err, HasSubstr("walsh: error: ")) << line;
    EXPECT_THAT(r.err, HasSubstr(where)) << line;
    EXPECT_EQ(messages().size(), 2u) << line;
  }
}

TEST_F(ChatCommand, NothingIsWrittenOverTheModel) {
  const std::string path = quantize("m.gguf", "tq3"), folder = copied_model();
  const std::string coded = file("coded"), config = folder + "/config.json";
  ASSERT_EQ(walsh({"quantize", model(), coded, "--type", "tq3", "--effort", "fast",
                   "--output-format", "hf"})
                .status,
            0);
  const auto refused = [&](const std::string& model, const std::string& written) {
    const std::string before = slurp(written);
    spill(file("lines"), "Hello\n/save " + written + "\n" + save());
    const CommandResult r = walsh({"run", model, "-n", "2"}, "", "< " + quoted(file("lines")));
    EXPECT_EQ(r.status, 2) << r.err;
    EXPECT_THAT(r.err, HasSubstr("would be written over")) << written;
    EXPECT_TRUE(slurp(written) == before) << written;
    EXPECT_EQ(messages().size(), 2u) << written;
  };
  refused(path, path);
  refused(folder, config);
  refused(coded, coded + "/config.json");
  const std::string written = "would be written over";
  expect_error(walsh({"run", path, "-p", "a", "--history", path}), 2, written);
  expect_error(walsh({"run", folder, "-p", "a", "--history", config}), 2, written);
}

TEST_F(ChatCommand, AMessageThatDoesNotFitCountsAsNotSaid) {
  std::string words;
  for (int i = 0; i < 40; ++i)
    words += "The city of London ";
  const CommandResult r = say(words + "\nHello\n" + save(), {"-c", "64"});
  EXPECT_EQ(r.status, 2) << r.err;
  EXPECT_THAT(r.err, HasSubstr("walsh: error: context: "));
  ASSERT_EQ(messages().size(), 2u);
  EXPECT_EQ(content(messages()[0]), "Hello");
}

TEST_F(ChatCommand, WithoutATemplateThereIsNoConversation) {
  const std::string folder = copied_model();
  Json config = Json::parse(slurp(folder + "/tokenizer_config.json"));
  config.erase("chat_template");
  spill(folder + "/tokenizer_config.json", config.dump());
  spill(file("lines"), "The city of\n");
  const std::string from = "< " + quoted(file("lines"));
  expect_error(walsh({"run", folder, "-cnv"}, "", from), 2, "chat template");
  expect_error(walsh({"run", folder, "-sys", "x"}, "", from), 2, "-sys");
  const CommandResult r = walsh({"run", folder, "-n", "2", "-q"}, "", from);
  EXPECT_TRUE(r.out.starts_with("The city of")) << "the line is completed: " << r.out;
}

// Types messages at a terminal.
class TypedChat : public ChatCommand {
 protected:
  std::vector<std::string> typed(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "run", model(),     "--temp",        "0",         "-t", "1", "--device",
        "cpu", "--history", file("history"), "--no-color"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(TypedChat, LinesCanBeEditedAndComeBack) {
  {
    PseudoTerminal terminal(typed({"-n", "2", "-q"}), "", "xterm");
    terminal.wait_for("> ");
    terminal.type(
        "Stra\xC3\x9Fx\x7F"
        "e\n");  // backspace takes the x
    terminal.wait_for("\n> ");
    terminal.type("\x1b[A !\n");  // the line before, with more
    terminal.wait_for("\n> ");
    terminal.type(save() + "/exit\n");
    EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
  }
  const Json all = messages();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(content(all[0]),
            "Stra\xC3\x9F"
            "e");
  EXPECT_EQ(content(all[2]),
            "Stra\xC3\x9F"
            "e !");
  struct stat history {};
  ASSERT_EQ(::stat(file("history").c_str(), &history), 0);
  EXPECT_EQ(history.st_mode & 0777, 0600u);

  PseudoTerminal again(typed({"-n", "2", "-q"}), "", "xterm");
  again.wait_for("> ");
  again.type("\x1b[A\x1b[A");  // /exit, /save
  again.wait_for("/save");
  // Between two prompts the terminal is an ordinary one, which would take the end for its own.
  again.type("\n/help\n");
  again.wait_for("forget all messages");
  again.wait_for("\n> ");
  again.type("\x04");
  EXPECT_EQ(again.finish(), 0);
  EXPECT_EQ(messages().size(), 0u) << "the line of the session before was run";
}

TEST_F(TypedChat, TabCompletesCommandsSettingsAndFiles) {
  spill(file("kept.json"), R"({"messages": []})");
  PseudoTerminal terminal(typed({"-n", "2", "-q"}), "", "xterm");
  terminal.wait_for("> ");
  terminal.type("/cl\t\n");
  terminal.wait_for("starts over");
  terminal.wait_for("> ");
  terminal.type("/s\t\x15");  // lists what begins so
  terminal.wait_for("/system  /set  /save");
  terminal.type("/set tempe\t0.25\n");
  terminal.wait_for("temperature is 0.25");
  terminal.wait_for("> ");
  terminal.type("/load " + file("ke") + "\t\n");
  terminal.wait_for("loaded 0 messages from");
  terminal.wait_for("> ");
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
}

// libedit would read a device to an end that it does not have.
TEST_F(TypedChat, AHistoryThatIsNoFileIsNone) {
  std::filesystem::create_symlink("/dev/zero", file("history"));
  PseudoTerminal terminal(typed({"-n", "2", "-q"}), "", "xterm");
  terminal.wait_for("> ");
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
}

TEST_F(TypedChat, WhatIsTypedMayHaveAColourOfItsOwn) {
  PseudoTerminal terminal(typed({"-n", "2", "-q", "--color"}), "", "xterm");
  terminal.wait_for("\x1b[32m> ");
  terminal.type("Hello\n");
  terminal.wait_for("\x1b[0m");
  terminal.wait_for("\x1b[32m> ");
  terminal.type("/exit\n");
  EXPECT_EQ(terminal.finish(), 0) << terminal.shown();
}

TEST_F(TypedChat, CtrlCStopsTheAnswerAndKeepsWhatWasSaid) {
  PseudoTerminal terminal(typed({"-n", "-1", "--ignore-eos", "--isa", "ref"}), "", "xterm");
  terminal.wait_for("> ");
  terminal.type("Once upon a time\n");
  terminal.wait_for("time\r\n");
  terminal.wait_for_output(5);
  terminal.type("\x03");
  terminal.wait_for("stopped");
  terminal.wait_for("> ");
  terminal.type(save());
  terminal.wait_for("> ");
  terminal.type("half a line\x03");
  terminal.wait_for("Ctrl-C again");
  terminal.wait_for("> ");
  terminal.type("/help\n");  // the half line is gone
  terminal.wait_for("/continue");
  terminal.wait_for("> ");
  for (int press = 0; press < 2; ++press) {
    terminal.type("\x03");
    if (press == 0) terminal.wait_for("Ctrl-C again");
  }
  EXPECT_EQ(terminal.finish(), 130) << terminal.shown();
  const Json all = messages();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["role"], "assistant");
  EXPECT_FALSE(content(all[1]).empty());
}

}  // namespace
}  // namespace walsh
