// Starts and stops the server as a user does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/cuda/device.h"
#include "base/cuda/first_device.h"
#include "cli/command.h"

namespace walsh {
namespace {

using testing::HasSubstr;

class ServeCommand : public CommandTest {
 protected:
  // Starts a server at a free port, waits until it listens, runs a script with its address as $port
  // and its process as $pid, and asks it to end.
  std::string with_server(const std::string& flags, const std::string& script,
                          const std::string& device = "cpu", const std::string& served = model()) {
    const std::string text =
        "exec 2> " + file("log") + "\n" +
        fmt::format("{} serve {} --device {} -t 2 --port 0 {} & pid=$!\n", WALSH_COMMAND, served,
                    device, flags) +
        "for i in $(seq 600); do grep -q http:// " + file("log") + " && break; sleep 0.05; done\n" +
        "port=$(sed -n 's/.*127.0.0.1:\\([0-9]*\\).*/\\1/p' " + file("log") + ")\n" +
        "ask() { exec 3<>/dev/tcp/127.0.0.1/$port; printf '%s' \"$1\" >&3; cat <&3; exec 3>&-; "
        "}\n" +
        script + "\nkill -TERM $pid; wait $pid; ended=$?; echo; echo ended with $ended\n";
    spill(file("script"), text);
    const CommandResult result =
        shell(fmt::format("bash {} > {} 2> {}", file("script"), file("stdout"), file("stderr")));
    return result.out;
  }
  static std::string request(const std::string& line, const std::string& body = "") {
    return fmt::format(
        "$'{} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n"
        "Content-Length: {}\\r\\n\\r\\n{}'",
        line, body.size(), body);
  }
  // Asks a model of several for three tokens.
  static std::string completion(const std::string& model) {
    return "ask " + request("POST /v1/completions", R"({"model": ")" + model +
                                                        R"(", "prompt": "The city of", )" +
                                                        R"("max_tokens": 3, "temperature": 0})");
  }
};

TEST_F(ServeCommand, AnswersUntilItIsAskedToEnd) {
  const std::string out = with_server(
      "--alias tiny",
      "ask " + request("GET /health") + "\nask " + request("GET /v1/models") + "\nask " +
          request("POST /v1/completions",
                  R"({"prompt": "The city of", "max_tokens": 3, "temperature": 0})"));
  EXPECT_THAT(out, HasSubstr("HTTP/1.1 200"));
  EXPECT_THAT(out, HasSubstr(R"({"status":"ok"})"));
  EXPECT_THAT(out, HasSubstr(R"("id":"tiny")"));
  EXPECT_THAT(out, HasSubstr(R"("completion_tokens":3)"));
  EXPECT_THAT(out, HasSubstr("ended with 0"));
}

TEST_F(ServeCommand, TheLargestBodyIsLargerWhereAModelTakesImages) {
  // Prints the status that a body of so many bytes gets before it is sent.
  const auto begun = [](int64_t bytes) {
    return fmt::format(
        "exec 3<>/dev/tcp/127.0.0.1/$port; printf '%s' $'POST /v1/chat/completions HTTP/1.1\\r\\n"
        "Host: localhost\\r\\nExpect: 100-continue\\r\\nContent-Length: {}\\r\\n\\r\\n' >&3; "
        "head -c 12 <&3; echo; exec 3>&-\n",
        bytes);
  };
  const std::string seeing = std::string(WALSH_TEST_DATA) + "/vision/mistral3-chat";
  EXPECT_THAT(with_server("", begun(9 << 20)), HasSubstr("HTTP/1.1 413"));
  const std::string larger = with_server("", begun(45 << 20) + begun(49 << 20), "cpu", seeing);
  EXPECT_THAT(larger, testing::StartsWith("HTTP/1.1 100\nHTTP/1.1 413\n"));
  EXPECT_THAT(with_server("--max-body 64KiB", begun(1 << 17), "cpu", seeing),
              HasSubstr("HTTP/1.1 413"));
  expect_error(walsh({"serve", model(), "--max-body", "1KiB"}), 2, "--max-body");
}

TEST_F(ServeCommand, SeveralModelsAnswerBehindOnePort) {
  std::filesystem::create_symlink(model(), file("other"));
  const std::string out =
      with_server(file("other"), completion("other") + "\n" + completion("nobody") + "\nask " +
                                     request("GET /v1/models"));
  EXPECT_THAT(out, HasSubstr(R"("completion_tokens":3)"));
  EXPECT_THAT(out, HasSubstr("there is no model 'nobody'"));
  EXPECT_THAT(out, HasSubstr(R"("value":"unloaded")"));
  EXPECT_THAT(out, HasSubstr("ended with 0"));
}

TEST_F(ServeCommand, AModelOfSeveralThatIsAbsentIsRefusedAtTheStart) {
  expect_error(walsh({"serve", model(), file("absent.gguf")}), 5, "absent.gguf: cannot open");
}

TEST_F(ServeCommand, FlagsThatASingleModelDoesNotHeedAreNoted) {
  EXPECT_THAT(with_server("--keep-alive 1h", "cat " + file("log")),
              HasSubstr("walsh: note: --models-memory and --keep-alive: a single model"));
  EXPECT_THAT(with_server("", "cat " + file("log")), testing::Not(HasSubstr("note")));
}

// There is room for one of the models, so that the second one takes the place of the first.
TEST_F(ServeCommand, SeveralModelsTakeTurnsOnAGpu) {
  if (!cuda::first_device()) GTEST_SKIP() << "no CUDA device: " << cuda::unavailable_reason();
  std::filesystem::create_symlink(model(), file("other"));
  const std::string first = std::filesystem::path(model()).filename();
  const std::string out =
      with_server(file("other") + " --ctx 512 --parallel 2 --models-memory 640MiB",
                  completion("other") + "; echo; " + completion(first) + "; echo; " +
                      completion("other") + "; cat " + file("log"),
                  "cuda");
  EXPECT_THAT(out, testing::ContainsRegex("completion_tokens.:3.*\n.*\n.*completion_tokens.:3"));
  EXPECT_THAT(out, HasSubstr("unloaded other: another model needs its memory"));
  EXPECT_THAT(out, HasSubstr("unloaded " + first + ": another model needs its memory"));
  EXPECT_THAT(out, HasSubstr("ended with 0"));
  const CommandResult in_parts =
      walsh({"serve", model(), file("other"), "--device", "cuda", "--gpu-layers", "1"},
            "unset CUDA_VISIBLE_DEVICES;");
  expect_error(in_parts, 2, "each of several models is on the GPU as a whole");
}

// Which host a request is for decides whether it is answered, and the target says it last.
TEST_F(ServeCommand, AnAbsoluteTargetNamesTheHost) {
  const std::string out =
      with_server("--allowed-hosts model.internal",
                  "ask " + request("GET http://model.internal:8080/health") + "; echo; ask " +
                      request("GET http://other.example/health"));
  EXPECT_THAT(out, HasSubstr(R"({"status":"ok"})"));
  EXPECT_THAT(out, HasSubstr("HTTP/1.1 403"));
  EXPECT_THAT(out, HasSubstr("--allowed-hosts other.example"));
}

TEST_F(ServeCommand, EndsWhatItAnswersWithinTheTimeThatItIsGiven) {
  const std::string out = with_server(
      "--drain 0.2 --ctx 4096",
      "ask " +
          request("POST /v1/completions",
                  R"({"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true})") +
          " > /dev/null & asking=$!; sleep 0.3");
  EXPECT_THAT(out, HasSubstr("ended with 0"));
}

TEST_F(ServeCommand, SignalsInQuickSuccessionEndItToo) {
  const std::string out = with_server(
      "--drain 60 --ctx 4096",
      "ask " +
          request("POST /v1/completions",
                  R"({"prompt": "a", "max_tokens": 4000, "ignore_eos": true, "stream": true})") +
          " > " + file("answer") + " & until [ -s " + file("answer") +
          " ]; do sleep 0.05; done; "
          "for i in 1 2 3 4 5 6; do kill -TERM $pid; sleep 0.1; done; "
          "kill -0 $pid && echo still there");
  EXPECT_THAT(out, testing::Not(HasSubstr("still there")));
  EXPECT_THAT(out, HasSubstr("ended with 130"));
}

TEST_F(ServeCommand, WantsAKeyWhereOthersCanReachIt) {
  const CommandResult open = walsh({"serve", model(), "--host", "0.0.0.0", "--port", "0"});
  expect_error(open, 2, "--api-key");
  spill(file("keys"), "# none\n\n");
  expect_error(walsh({"serve", model(), "--api-key-file", file("keys")}), 2, "has no key");
  expect_error(walsh({"serve", model(), "--api-key-file", file("absent")}), 5, "absent");
  expect_error(walsh({"serve", file("absent"), "--port", "0"}), 5, "absent");
  expect_error(walsh({"serve", model(), "--host", "192.0.2.1", "--api-key", "k", "--port", "0"}), 5,
               "192.0.2.1");
}

// "$KEY" expands to this if the variable is not set: a client without a key would be admitted.
TEST_F(ServeCommand, AnEmptyKeyIsNone) {
  expect_error(walsh({"serve", model(), "--host", "192.0.2.1", "--api-key", "", "--port", "0"}), 2,
               "--api-key: a key is empty");
}

TEST_F(ServeCommand, HasDefaultsForSampling) {
  const std::string body = R"({"prompt": "The city of", "max_tokens": 3, "logprobs": 0})";
  const std::string asking = "ask " + request("POST /v1/completions", body) + " | tail -1";
  const auto text = [&](const std::string& flags) {
    const std::string out = with_server(flags, asking);
    return out.substr(out.find("\"text\":"), 40);
  };
  EXPECT_EQ(text("--temp 0"), text("--top-k 1 --seed 5"));
  expect_error(walsh({"serve", model(), "--port", "0", "--top-p", "2"}), 2, "top_p: 2");
  expect_error(walsh({"serve", model(), "--port", "0"}, "WALSH_ARG_TEMP=-1"), 2, "temperature: -1");
}

TEST_F(ServeCommand, SaysInOneLineWhereItListens) {
  const std::string shown = "cat " + file("log");
  EXPECT_THAT(with_server("--alias $'two\\nlines'", shown),
              HasSubstr("/v1: two lines, up to 16 texts at a time, each of up to 4096"));
  expect_error(walsh({"serve", model(), "--port", "70000"}), 2,
               "--port: 70000 is not a number from 0 to 65535");
  if (slurp("/proc/net/if_inet6").empty()) GTEST_SKIP() << "no IPv6 on this system";
  EXPECT_THAT(with_server("--host ::1", shown), HasSubstr("listening at http://[::1]:"));
}

// Its standard error is a pipe that is open and full, as of a program that starts it and never
// reads.
TEST_F(ServeCommand, EndsAlthoughNobodyReadsItsLog) {
  const std::string out = with_server(
      "", "mkfifo " + file("pipe") + "; exec 5<> " + file("pipe") + "\n" +
              fmt::format("{} serve {} --device cpu -t 2 --port 0 2>&5 & other=$!\n", WALSH_COMMAND,
                          model()) +
              "read -r line <&5; timeout 1 dd if=/dev/zero bs=4096 count=100 >&5 2> /dev/null\n"
              "kill -TERM $other; for i in $(seq 200); do kill -0 $other || break; sleep 0.1; done "
              "2> /dev/null\n"
              "kill -9 $other 2> /dev/null; wait $other; echo other ended with $?");
  EXPECT_THAT(out, HasSubstr("other ended with 0"));
}

TEST_F(ServeCommand, GuessesTokensWithAnotherModel) {
  const std::string body =
      R"({"prompt": "The city of", "max_tokens": 60, "temperature": 0, "ignore_eos": true})";
  const std::string out =
      with_server("-ctk q8_0 --spec " + model(), "ask " + request("POST /v1/completions", body) +
                                                     "; echo; ask " + request("GET /metrics") +
                                                     " | grep drafted_right_tokens_total");
  EXPECT_THAT(out, HasSubstr(R"("completion_tokens":60)"));
  EXPECT_THAT(out, testing::ContainsRegex("drafted_right_tokens_total [1-9]"));
  EXPECT_THAT(out, HasSubstr("ended with 0"));
}

TEST_F(ServeCommand, FlagsMayComeAsVariables) {
  const CommandResult r =
      walsh({"serve", model(), "--port", "0"}, "WALSH_ARG_HOST=0.0.0.0 WALSH_ARG_CTX=64");
  expect_error(r, 2, "0.0.0.0");
}

TEST_F(ServeCommand, EveryNameOfAFlagHasAVariable) {
  for (const std::string name : {"GPU_LAYERS", "NGL", "N_GPU_LAYERS", "CPU_EXPERTS", "N_CPU_MOE",
                                 "CACHE_TYPE_K", "CTK", "PREFIX_CACHE", "NO_PREFIX_CACHE"}) {
    SCOPED_TRACE(name);
    const CommandResult r = walsh({"serve", model(), "--port", "0", "--host", "0.0.0.0"},
                                  "WALSH_ARG_" + name + "=what");
    expect_error(r, 2, "what");
  }
  // Several inverted ones count together.
  expect_error(walsh({"serve", model(), "--port", "0", "--host", "0.0.0.0"},
                     "WALSH_ARG_NO_SLOTS=what WALSH_ARG_NO_PREFIX_CACHE=1"),
               2, "what");
  // An empty one is none, and flags win.
  const std::string variables = "WALSH_ARG_NGL= WALSH_ARG_GPU_LAYERS=what";
  expect_error(walsh({"serve", model(), "--host", "0.0.0.0", "-ngl", "0"}, variables), 2,
               "0.0.0.0");
}

}  // namespace
}  // namespace walsh
